"""The first difference, printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from probe_core.cli import console
from probe_core.errors import printable
from probe_core.model import Cell
from probe_core.store.frames import own_frames
from probe_diagnosis.difference.analysis import Analysis, Found
from probe_diagnosis.difference.facts import DIFFERS, UNJUDGED, Apart

SHOWN_NODES = 5
SHOWN_FRAMES = 3


@dataclass(frozen=True, slots=True)
class Shown:
    """The first differences of one step, for a person."""

    analysis: Analysis

    @property
    def is_judged(self) -> bool:
        """True where there was a value to judge."""
        return bool(self.analysis.judged)

    def show(self) -> None:
        """Print the ops where ranks diverge first: why each is first, its values side by side."""
        analysis = self.analysis
        where = f"{analysis.part}: " if analysis.part else ""
        if not analysis.found:
            if analysis.judged:
                console.show(f"{where}no difference beyond rounding in {len(analysis.ranks)} rank(s)")
            else:
                console.warn(
                    f"{where}no value could be judged in {len(analysis.ranks)} rank(s): this is no agreement"
                )
            if analysis.unjudged:
                text = f"{analysis.judged:,} values judged, {analysis.unjudged:,} not"
                console.show(f"  {text}: without a partner, without data, or in calls that may be mispaired")
            return
        console.show(f"{where}first difference among {len(analysis.ranks)} rank(s):")
        for one in analysis.found[:SHOWN_NODES]:
            _node(one)
        if len(analysis.found) > SHOWN_NODES:
            console.show(f"  and {len(analysis.found) - SHOWN_NODES} more that no other explains")
        console.show(f"  wrote {analysis.file}")


def _node(one: Found) -> None:
    facts = one.node.facts
    console.show(f"  rank {one.node.rank}: {console.style(printable(facts.op), bold=True)}")
    console.show(f"      {printable(one.node.why)}")
    if facts.within:
        console.show(f"      in {printable(facts.within[0], 200)}")
    for frame in islice(own_frames(one.stack), SHOWN_FRAMES):
        console.show(f"      {printable(frame, 200)}")
    lines = [("", "NPU", "Bench", "")]
    for item in one.items:
        name = printable(item.apart.row.removeprefix(f"{facts.op}."), 100)
        lines.append((name, _values(item.cells, "NPU"), _values(item.cells, "Bench"), _mark(item.apart)))
    widths = [max(len(line[column]) for line in lines) for column in range(3)]
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths))
        console.show(f"      {'  '.join(cells)}  {line[3]}".rstrip())


def _values(cells: Mapping[str, Cell], side: str) -> str:
    """One side of a value on a line: its statistics or its checksum."""
    checksum = cells.get("NPU MD5" if side == "NPU" else "BENCH MD5")
    if checksum is not None:
        return printable(str(checksum), 40)
    numbers = [cells.get(f"{side} {name}") for name in ("max", "min", "mean", "l2norm")]
    if len(set(map(str, numbers))) == 1:
        return printable(str(numbers[0]), 40)
    shown = (f"{number:.5g}" if isinstance(number, float) else str(number) for number in numbers)
    return printable(" ".join(shown), 80)


def _mark(value: Apart) -> str:
    if value.state == DIFFERS:
        return console.style("differs", fg="red")
    return value.why or "not judged" if value.state == UNJUDGED else ""
