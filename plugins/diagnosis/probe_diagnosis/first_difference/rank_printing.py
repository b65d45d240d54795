"""The first difference, printed on the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from probe_core import console
from probe_core.errors import format_count, make_printable
from probe_core.model import Cell
from probe_diagnosis.difference.differing_values import format_evidence
from probe_diagnosis.first_difference.analysis import DivergingCall, StepAnalysis
from probe_diagnosis.frames import select_own_frames
from probe_diagnosis.timeline.compared_calls import ValueComparison, ValueState

MAX_SHOWN_CALLS = 5
"""Largest number of ops that are printed for a step."""

MAX_SHOWN_FRAMES = 3
"""Largest number of lines of code that are printed for an op."""


@dataclass(frozen=True, slots=True)
class FirstDifferenceConclusion:
    """First differences of one step, which can be printed."""

    analysis: StepAnalysis
    answer: None = None

    @property
    def is_judged(self) -> bool:
        """True if at least one value could be judged."""
        return bool(self.analysis.judged_count)

    def show(self, *, brief: bool = False) -> None:
        """Print the ops where the ranks diverge first, each with its reason and its values side by side."""
        analysis = self.analysis
        where = f"{analysis.part}: " if analysis.part else ""
        ranks = format_count(len(analysis.ranks), "rank")
        if not analysis.causes:
            if analysis.judged_count:
                console.show(f"{where}no difference beyond rounding in {ranks}")
            else:
                console.warn(
                    f"{where}no value could be judged in {ranks}, so this does not say "
                    "that they agree; check that both runs were recorded with statistics or tensors"
                )
            if analysis.unjudged_count:
                console.show(
                    f"  {format_count(analysis.judged_count, 'value')} judged, {analysis.unjudged_count:,} not: "
                    "without a partner, without data, or in calls that may be paired wrongly"
                )
            return
        console.show(f"{where}first difference among {ranks}:")
        for difference in analysis.causes[:MAX_SHOWN_CALLS]:
            _print_op(difference)
        if len(analysis.causes) > MAX_SHOWN_CALLS:
            rest = len(analysis.causes) - MAX_SHOWN_CALLS
            console.show(f"  and {format_count(rest, 'more call')} that no other difference explains")
        console.show(f"  wrote {analysis.file}")


def _print_op(difference: DivergingCall) -> None:
    """Print an op, the reason why it is named, the code that called it, and its values."""
    cause = difference.cause
    console.show(f"  rank {cause.rank}: {console.style(make_printable(cause.op), bold=True)}")
    console.show(f"      {make_printable(cause.reason.detail)}")
    if cause.modules:
        console.show(f"      in {make_printable(cause.modules[0], 200)}")
    for frame in islice(select_own_frames(difference.stack), MAX_SHOWN_FRAMES):
        console.show(f"      {make_printable(frame, 200)}")
    what = "checksum" if any("NPU MD5" in item.cells for item in difference.items) else "max min mean norm"
    lines = [("", f"NPU: {what}", f"Bench: {what}", "")]
    for item in difference.items:
        name = make_printable(item.comparison.row.removeprefix(f"{cause.op}."), 100)
        lines.append(
            (
                name,
                _format_values(item.cells, "NPU"),
                _format_values(item.cells, "Bench"),
                _format_mark(item.comparison),
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths))
        console.show(f"      {'  '.join(cells)}  {line[3]}".rstrip())


def _format_values(cells: Mapping[str, Cell], side: str) -> str:
    """Return one side of a value as text: its checksum, or its statistics."""
    checksum = cells.get("NPU MD5" if side == "NPU" else "BENCH MD5")
    if checksum is not None:
        return make_printable(str(checksum), 40)
    numbers = [cells.get(f"{side} {name}") for name in ("max", "min", "mean", "l2norm")]
    if len(set(map(str, numbers))) == 1:
        return make_printable(str(numbers[0]), 40)
    shown = (f"{number:.5g}" if isinstance(number, float) else str(number) for number in numbers)
    return make_printable(" ".join(shown), 80)


def _format_mark(value: ValueComparison) -> str:
    """Return the remark at the end of a value's line; empty if both sides agree."""
    if value.state == ValueState.DIFFERS:
        return console.style("differs", fg="red")
    return format_evidence(value) or "not judged" if value.state == ValueState.UNJUDGED else ""
