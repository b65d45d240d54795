"""The recording of a block of code, for ``record`` of the frameworks (docs/launchers.md#record)."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ContextDecorator
from pathlib import Path
from types import TracebackType
from typing import Any

from probe_core.errors import UserError, format_count
from probe_recording.messages import note
from probe_recording.recorder.recorder import Recorder
from probe_recording.recorder.stages import check_stage_support
from probe_recording.recorder.step_follower import StepFollower
from probe_recording.run_directory.directory import SINGLE
from probe_recording.sessions.loss import format_steps
from probe_recording.settings.config import Config, load_config, parse_steps
from probe_recording.settings.recorded_settings import REPEATED_SECTION_FIELDS

CONFIG_SUFFIX = ".json"
"""The suffix by which the path of a configuration is distinguished from the directory of a run."""

HookSteps = Callable[[Callable[..., None]], Callable[[], None]]
"""A function that calls another with each optimizer that has stepped, and returns a function that ends this."""


def create_block_config(target: str | os.PathLike[str], level: str, fields: dict[str, Any]) -> Config:
    """Return the settings of a recording whose fields are given as arguments.

    Args:
        target: The directory of the run, or the path of a ``config.json``.
        level: The level of a recording without a configuration.
        fields: Fields of the configuration and of the section of its task, by which the file is overridden.

    Raises:
        UserError: A field has a wrong value.
    """
    path = os.fspath(target)
    fields = {name: value for name, value in fields.items() if value is not None}
    if isinstance(fields.get("step"), (str, int)):
        fields["step"] = parse_steps(str(fields["step"]))
    section = {name: fields.pop(name) for name in REPEATED_SECTION_FIELDS if name in fields}
    if path.endswith(CONFIG_SUFFIX):
        if section:
            raise UserError(
                f"{', '.join(section)} cannot be given together with a configuration.", f"Write it into {path}."
            )
        config = load_config(path, **fields)
    else:
        fields = {"level": level, "task": "statistics", "dump_path": path, **fields}
        config = load_config(None, **fields, **{str(fields["task"]): section})
    check_stage_support(config, "The recording")
    return config


class RecordedBlock(ContextDecorator):
    """A block of code, or a decorated function, that is recorded.

    A step ends when the first optimizer in the block has stepped. A second block continues with the next step.

    Args:
        create: A function that returns a new recorder.
        models: The models to record; empty if the recorder finds them.
        hook_steps: A function that observes optimizers; None to record the whole block as one step.
    """

    def __init__(
        self, create: Callable[[], Recorder[Any]], models: Sequence[Any] = (), hook_steps: HookSteps | None = None
    ) -> None:
        self._create = create
        self._model = models[0] if len(models) == 1 else [*models] or None
        self._hook_steps = hook_steps
        self._recorder: Recorder[Any] | None = None
        self._unhook: Callable[[], None] | None = None
        self._next_step = 0

    @property
    def path(self) -> Path | None:
        """The directory of the run; None before the first block."""
        return None if self._recorder is None else self._recorder.config.dump_path

    def __enter__(self) -> RecordedBlock:
        if self._unhook is not None:
            raise UserError("This recording is running already.", "Use another record() inside of the block.")
        recorder = self._create()
        if self._next_step:
            recorder.set_step(self._next_step)
        recorder.start(self._model, None)
        self._recorder = recorder
        self._unhook = lambda: None
        if self._hook_steps is not None:
            self._unhook = self._hook_steps(StepFollower(recorder, self._model).end_step)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        recorder, unhook, self._unhook = self._recorder, self._unhook, None
        assert recorder is not None and unhook is not None
        unhook()
        recorder.finish()
        counts = {step: recorder.record_counts[step] for step in recorder.complete_steps}
        self._next_step = max(counts, default=self._next_step - 1) + 1
        report_recording(recorder)


def report_recording(recorder: Recorder[Any]) -> None:
    """Print which steps a recorder has written, and where; print nothing if there are none."""
    steps = recorder.complete_steps
    if steps:
        count = sum(recorder.record_counts[step] for step in steps)
        place = f" as {recorder.place}" if recorder.place not in ("", SINGLE) else ""
        note(
            f"probe recorded {format_steps(steps)} ({format_count(count, 'record')}) "
            f"into {recorder.config.dump_path}{place}"
        )
