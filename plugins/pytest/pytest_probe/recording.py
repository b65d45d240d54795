"""Recording of the steps of a test."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _pytest
from probe_recording.api import Config, belongs_to_recorder
from probe_recording.framework import new_recorder

from probe_core.errors import UserError
from pytest_probe.step import DUMP_FILE, FRAMEWORK, RecordedStep

if TYPE_CHECKING:
    from torch import nn

belongs_to_recorder(Path(__file__).parent)
belongs_to_recorder(Path(_pytest.__file__).parent, "python.py")  # stacks end at the function of the test


class StepRecorder:
    """A recorder of one run of a test.

    Args:
        directory: The directory of the run.

    Attributes:
        steps: The steps that were recorded completely.
        is_active: True while a step is recorded.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._recorder = new_recorder(Config(directory, level="mix", summary="xxh3", conditions=False), FRAMEWORK)
        self._count = 0
        self.steps: list[RecordedStep] = []
        self.is_active = False

    @contextmanager
    def record(self, models: Sequence[nn.Module]) -> Iterator[None]:
        """Record a step while the block runs; without models, those of the block are found when they are called.

        Raises:
            UserError: Nothing was recorded.
        """
        self.is_active = True
        self._recorder.start(models[0] if len(models) == 1 else [*models] or None, None)
        try:
            yield
        except BaseException:
            self._end_step()
            raise
        self._end_step()
        self._add_step()

    def _end_step(self) -> None:
        self._recorder.stop()
        self._recorder.step()
        self._count += 1
        self.is_active = False

    def _add_step(self) -> None:
        if self._recorder.lost is not None:
            raise UserError(
                f"The recording could not be written to {self._directory}.",
                "Free some space there, or give pytest another directory with --basetemp.",
            )
        files: list[Any] = sorted(self._directory.glob(f"step{self._count - 1}/*/{DUMP_FILE}"))
        if not files:
            raise UserError(
                "probe_golden recorded no call of torch.", "Pass a function, or a block of code, that calls torch."
            )
        self.steps.append(RecordedStep(files[0].parent))

    def close(self) -> None:
        """Release the directory."""
        self._recorder.complete()
