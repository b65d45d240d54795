"""Output of the figures of a step: csv files, or events of TensorBoard."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from probe_check.monitor.csv_file import format_file_name, format_line, write_lines
from probe_check.monitor.figures import Figures, list_columns
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory


class MonitorOutput(Protocol):
    """A writer of the figures of steps."""

    def write(self, step: int, figures: Sequence[Figures]) -> None:
        """Write the figures of a step."""

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Write the distribution of the elements of a tensor."""

    def close(self) -> None:
        """Write what is not written yet."""


class NoOutput:
    """An output that writes nothing; scripts read the figures by methods of the monitor."""

    def write(self, step: int, figures: Sequence[Figures]) -> None:
        """Do nothing."""

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class CsvOutput(NoOutput):
    """A writer of csv files.

    Args:
        directory: The directory of the rank; it is created.
        settings: The configuration.

    Raises:
        UserError: The directory is not writable.
    """

    def __init__(self, directory: Path, settings: MonitorSettings) -> None:
        make_directory(directory)
        self._directory = directory
        self._settings = settings

    def write(self, step: int, figures: Sequence[Figures]) -> None:
        """Write the figures of a step, one file per task.

        Raises:
            UserError: A file cannot be written.
        """
        settings = self._settings
        tasks: dict[Task, list[Figures]] = {}
        for each in figures:
            tasks.setdefault(each.task, []).append(each)
        for task, members in tasks.items():
            operations = task.operations or settings.operations
            write_lines(
                self._directory / format_file_name(task.value, step, settings.steps_per_file),
                list_columns(task, operations, has_micro_step=members[0].micro_step is not None),
                [format_line(each, operations, step, settings.digits) for each in members],
                is_whole=settings.steps_per_file == 1,
            )


class TensorBoardOutput:
    """A writer of events of TensorBoard.

    Args:
        directory: The directory of the rank.
        operations: The operations of the configuration.
        rank: The rank.

    Raises:
        UserError: TensorBoard is not installed, or the directory is not writable.
    """

    def __init__(self, directory: Path, operations: Sequence[str], rank: int) -> None:
        make_directory(directory)
        self._writer = create_summary_writer(directory)
        self._operations = tuple(operations)
        self._rank = rank

    def write(self, step: int, figures: Sequence[Figures]) -> None:
        """Write the figures of a step."""
        for each in figures:
            for operation, value in zip(each.task.operations or self._operations, each.values):
                self._writer.add_scalar(f"{each.format_tag(self._rank)}_{operation}", value, step)

    def add_histogram(self, tag: str, values: Any, step: int) -> None:
        """Write the distribution of the elements of a tensor."""
        self._writer.add_histogram(tag, values, step)

    def close(self) -> None:
        """Write what is not written yet."""
        self._writer.close()


def create_summary_writer(directory: Path) -> Any:
    """Return a ``SummaryWriter`` of TensorBoard.

    Raises:
        UserError: TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UserError(
            'The format "tensorboard" needs the packages torch and tensorboard.',
            'Install them (pip install tensorboard), or set "format": "csv".',
        ) from None
    writer: Any = SummaryWriter(str(directory))
    return writer
