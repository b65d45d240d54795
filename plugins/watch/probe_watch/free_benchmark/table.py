"""The table ``free_benchmark.csv`` of one step and rank (docs/free-benchmark.md#output)."""

from __future__ import annotations

import csv
import io
import os
from dataclasses import dataclass
from pathlib import Path

from probe_core.files.atomic import make_directory, open_file
from probe_watch.free_benchmark.outcome import OutputComparison, OutputDifference
from probe_watch.free_benchmark.settings import ChangeMode, Stage

FILE = "free_benchmark.csv"
HEADER = ("rank", "pert_mode", "stage", "step", "api_name", "max_rel", "dtype", "shape", "output_index")


@dataclass(frozen=True, slots=True)
class InconsistentCall:
    """A call whose second result is inconsistent.

    Attributes:
        rank: The rank; 0 without a process group.
        mode: The change of the inputs.
        stage: The part of the call.
        step: The step.
        name: The name of the call, with its phase.
        outcome: The comparison.
    """

    rank: int
    mode: ChangeMode
    stage: Stage
    step: int
    name: str
    outcome: OutputComparison

    def format_cells(self) -> tuple[str, ...]:
        """Return the cells of the row, in the order of ``HEADER``."""
        outcome = self.outcome
        index = "" if outcome.index is None else str(outcome.index)
        return (
            str(self.rank), self.mode.value, self.stage.value, str(self.step), self.name,
            _format_max_rel(outcome), outcome.dtype, outcome.shape, index,
        )  # fmt: skip


def _format_max_rel(outcome: OutputComparison) -> str:
    if outcome.difference in (OutputDifference.SIGN, OutputDifference.NOT_FINITE):
        return str(outcome.difference.value)
    return "" if outcome.ratio is None else str(outcome.ratio - 1)


class BenchmarkTable:
    """The table of one step and rank; its file is created with the first row.

    Each row is written at once by a single call of the operating system, so that a process that is killed
    leaves whole rows.

    Args:
        directory: The directory of the step and rank.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._descriptor: int | None = None

    def add(self, row: InconsistentCall) -> None:
        """Write a row.

        Raises:
            OSError: The file cannot be written.
            UserError: The directory cannot be created.
        """
        lines = _format_line(row.format_cells())
        if self._descriptor is None:
            make_directory(self._directory)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
            self._descriptor = open_file(self._directory / FILE, flags)
            lines = _format_line(HEADER) + lines
        data = lines.encode()
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _format_line(cells: tuple[str, ...]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(cells)
    return text.getvalue()
