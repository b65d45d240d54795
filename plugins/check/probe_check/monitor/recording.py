"""Recording of the steps that follow an alert (docs/monitor.md#record-the-next-steps)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from probe_recording.api import Debugger, DumperSpec
from probe_recording.messages import note

from probe_check.monitor import sentences
from probe_core.errors import UserError, describe_error
from probe_core.plugins.manager import Manager

RECORDING_DIRECTORY = "recording"
RECORDING_LEVEL = "mix"


class StepRecorder:
    """A recorder of the steps after the first alert, by the debugger of the framework.

    ``end_step`` is called outside of all hooks, because the debugger adds and removes hooks.

    Args:
        framework: The name of the framework.
        directory: The directory of the rank's files.
        models: The models.

    Raises:
        UserError: No installed plugin records programs of the framework.
    """

    def __init__(self, framework: str, directory: Path, models: Sequence[Any]) -> None:
        self._kind = find_debugger(framework)
        self._path = directory / RECORDING_DIRECTORY
        self._models = tuple(models)
        self._debugger: Debugger[Any, Any] | None = None
        self._remaining = 0
        self._has_started = self._is_running = False

    def start(self, first_step: int, count: int) -> None:
        """Record steps, unless steps were recorded before.

        Args:
            first_step: The number of the next step.
            count: Number of steps.
        """
        if self._has_started:
            return
        self._has_started = True
        last_step = first_step + count - 1
        try:
            steps: list[int | str] = [f"{first_step}-{last_step}"]
            self._debugger = self._kind(
                task="statistics",
                level=RECORDING_LEVEL,
                dump_path=self._path.absolute(),
                model=self._models[0] if len(self._models) == 1 else list(self._models),
                step=steps,
            )
            self._debugger.set_init_step(first_step)
        except UserError as error:
            note(sentences.format_not_recorded(error.what))
            return
        self._remaining = count
        note(sentences.format_recording_start(first_step, last_step, self._path))

    def end_step(self) -> None:
        """End a recorded step after a step of the optimizer, and begin the next one."""
        if self._debugger is not None and (self._is_running or self._remaining):
            self._guard(self._begin_session)

    def finish(self) -> None:
        """Write a step that the end of the program interrupts."""
        if self._is_running:
            self._guard(self._end_session)

    def _begin_session(self) -> None:
        if self._is_running:
            self._end_session()
        if self._remaining and self._debugger is not None:
            self._is_running = True
            self._debugger.start()

    def _end_session(self) -> None:
        self._is_running = False
        self._remaining -= 1
        if self._debugger is not None:
            self._debugger.stop()
            self._debugger.step()

    def _guard(self, function: Callable[[], None]) -> None:
        """Call a function whose errors must not reach the training."""
        try:
            function()
        except Exception as error:  # of the recorder: the training must go on
            self._remaining = 0
            self._is_running = False
            note(
                sentences.format_not_recorded(
                    error.what if isinstance(error, UserError) else f"{describe_error(error)}."
                )
            )


def find_debugger(framework: str) -> Any:
    """Return the debugger of a framework that an installed plugin provides.

    Raises:
        UserError: There is none.
    """
    specs = [spec for spec in Manager().specs("dumpers", DumperSpec) if spec.framework == framework]
    if not specs:
        raise UserError(
            f'"record_steps" needs a plugin that records {framework}.',
            f'Install probe-{framework}, or remove "record_steps".',
        )
    return specs[0].make()
