"""Recorders of tasks that plugins provide, such as ``grad_probe``, behind the methods of the debugger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NoReturn

from probe_core.errors import UserError
from probe_recording.recorder.activity import Activity
from probe_recording.run_directory.process import Process
from probe_recording.settings.config import TASKS, Config, find_plugin_tasks


def create_task_recorder(config: Config, framework: str, process: Process) -> TaskRecorder | None:
    """Return the recorder of a plugin's task; None for a task of the framework's own recorder.

    Args:
        config: The settings.
        framework: The name of the framework.
        process: What the framework offers to tasks.

    Raises:
        UserError: The plugin does not support the framework.
    """
    if config.task in TASKS:
        return None
    spec = find_plugin_tasks()[config.task]
    if framework not in spec.frameworks:
        raise UserError(
            f'The task "{spec.name}" is not available for {framework}.',
            f'Choose another "task"; "{spec.name}" is available for {", ".join(spec.frameworks)}.',
        )
    recorder = replace(spec, values={"config": config, "framework": framework}).make()
    assert isinstance(recorder, TaskRecorder)
    recorder.process = process
    return recorder


class TaskRecorder:
    """A recorder of a plugin's task; each method serves the method of the debugger of the same name.

    Methods that a task does not support raise a UserError, and a subclass overrides those that it does.

    Args:
        config: The settings; ``config.settings`` holds those of the task's section.

    Attributes:
        config: The same.
        activity: What the program did.
        process: The rank of the process and hooks of the framework; set after construction.
        current_step: The number of the current step, as ``step`` and ``set_init_step`` set it.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.activity = Activity(config)
        self.process = Process()
        self.current_step = 0

    def start(self, model: Any, token_range: tuple[int, int] | None) -> None:
        """Start observing the current step; ``model`` is None if the script passed none."""

    def select_request(self, scheduled_tokens: Mapping[str, int] | None) -> bool:
        """Return True, because only recorded runs are limited to a request."""
        return True

    def report_comparison(self) -> None:
        """Print nothing, because only recorded runs are compared with a golden."""

    def stop(self) -> None:
        """Stop observing; ``start`` may be called again in the same step."""

    def step(self) -> None:
        """End the step."""
        self.current_step += 1

    def set_step(self, step: int) -> None:
        """Set the number of the current step, for a training that is resumed."""
        self.current_step = step

    def finish(self) -> None:
        """Write what is not written yet; called once, when the process ends."""

    def monitor(self, model: Any) -> None:
        """Observe a model from now on."""
        self._refuse("monitor")

    def save(self, variable: Any, name: str, backward: bool) -> None:
        """Record a variable."""
        self._refuse("save")

    def note_tokens(self, ids: Any, positions: Any, lengths: Any) -> None:
        """Ignore the tokens of a batch, which only a recorded run holds."""

    def module_dump(self, module: Any, name: str) -> None:
        """Record one module."""
        self._refuse("module_dump")

    def module_dump_end(self) -> None:
        """End the recording of one module."""
        self._refuse("module_dump_end")

    def register(self, holder: Any, attribute: str, name: str) -> None:
        """Observe a function of the user."""
        self._refuse("register_custom_api")

    def restore(self, holder: Any, attribute: str) -> bool:
        """Stop observing a function of the user."""
        self._refuse("restore_custom_api")

    def _refuse(self, method: str) -> NoReturn:
        raise UserError(
            f'The task "{self.config.task}" does not support {method}().',
            f'Remove the call, or record with "task": "statistics" or "tensor", which support {method}().',
        )
