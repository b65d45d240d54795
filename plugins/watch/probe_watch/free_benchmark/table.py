"""The table ``free_benchmark.csv`` of one step and rank (docs/free-benchmark.md#output)."""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from probe_recording.messages import note

from probe_core.errors import format_count, format_list
from probe_core.files.atomic import make_directory, open_file
from probe_watch.free_benchmark.outcome import OutputComparison, OutputDifference, SkipReason
from probe_watch.free_benchmark.settings import BenchmarkSettings, ChangeMode, Handler, Stage

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


# -- messages of free_benchmark on stderr -----------------------------------------------------------


REASONS = {
    SkipReason.KIND: "tensors of a kind that is not supported, such as sparse tensors or subclasses",
    SkipReason.RANDOM: "they draw random numbers that a second run cannot draw again",
    SkipReason.FAILED: "an exception in the second run",
    SkipReason.COMPARISON: "results that cannot be compared, such as different shapes",
}


@dataclass(slots=True)
class BenchmarkCounts:
    """Numbers of the results and calls that a run examined.

    Attributes:
        outcomes: The number of compared results.
        inconsistent: The number of inconsistent results, by the name of the API.
        skipped: The number of calls that were not examined, by reason and the name of the API.
    """

    outcomes: int = 0
    inconsistent: Counter[str] = field(default_factory=Counter)
    skipped: dict[SkipReason, Counter[str]] = field(default_factory=dict)

    def add(self, name: str, outcome: OutputComparison) -> None:
        """Count an outcome of a call, named with its phase."""
        self.outcomes += 1
        if not outcome.consistent:
            self.inconsistent[name.rsplit(".", 2)[0]] += 1

    def skip(self, name: str, reason: SkipReason) -> None:
        """Count a call, named without phase, that was not examined."""
        self.skipped.setdefault(reason, Counter())[name.rpartition(".")[0]] += 1


def summarize(counts: BenchmarkCounts, settings: BenchmarkSettings, root: Path) -> None:
    """Print what a run examined and found."""
    mode = settings.mode.value
    if not counts.outcomes:
        note(f"probe: free_benchmark ({mode}) compared no call. Check step, rank, list and scope.")
    elif not counts.inconsistent:
        note(f"probe: free_benchmark ({mode}) compared {format_count(counts.outcomes, 'result')}; all agree.")
    else:
        apis = format_list([f"{api} ({count})" for api, count in counts.inconsistent.most_common()])
        total = format_count(sum(counts.inconsistent.values()), "result")
        place = "" if settings.handler is Handler.FIX else f" See {root}/step*/rank*/{FILE}."
        note(
            f"probe: free_benchmark ({mode}) compared {format_count(counts.outcomes, 'result')}; "
            f"inconsistent: {total} of {apis}.{place}"
        )
    for reason, apis_skipped in counts.skipped.items():
        total = format_count(sum(apis_skipped.values()), "call")
        note(f"probe: {total} of {format_list(list(apis_skipped))} not examined: {REASONS[reason]}.")
