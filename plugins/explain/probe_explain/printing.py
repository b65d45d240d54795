"""Verdict on a run, printed on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core.cli import console
from probe_core.errors import printable
from probe_explain.verdict import Cause, Outcome, Verdict

SHOWN = 5
"""Largest number of causes and of reasons that are printed."""
LONGEST = 600
"""Largest number of characters of a line."""
COLOURS = {Outcome.INTRODUCED: "red", Outcome.WITHIN: "green", Outcome.CANNOT_TELL: "yellow"}


def show(verdict: Verdict, files: Sequence[Path], *, brief: bool = False) -> None:
    """Print the verdict, and unless ``brief`` is set its causes and the records that it rests on."""
    styled = console.style(verdict.outcome.value, fg=COLOURS[verdict.outcome], bold=True)
    console.show(f"{styled}: {printable(verdict.text, LONGEST)}")
    if not brief:
        for number, cause in enumerate(verdict.causes[:SHOWN], 1):
            _show_cause(number, cause, names_rank=verdict.names_ranks or bool(cause.beyond.rank))
        _show_more(verdict.causes)
        console.show(f"  computed again: {verdict.judged:,} of {verdict.recorded:,} records")
        for reason in verdict.missing[:SHOWN]:
            console.show(f"    not: {printable(reason.sentence, LONGEST)}")
        _show_more(verdict.missing)
        if verdict.fragile:
            console.show(f"  {printable(verdict.fragile, LONGEST)}")
    for file in files:
        console.show(f"  wrote {file}")


def _show_cause(number: int, cause: Cause, *, names_rank: bool) -> None:
    beyond = cause.beyond
    place = f"{beyond.step}, " if beyond.step else ""
    place += f"rank {beyond.rank}, " if names_rank else ""
    console.show(f"  {number}. {place}{console.style(printable(beyond.op), bold=True)}")
    console.show(f"        {printable(cause.statement, LONGEST)}")
    if beyond.modules:
        console.show(f"        in {printable(beyond.modules[0], 200)}")
    if beyond.where:
        console.show(f"        {printable(beyond.where, 200)}")
    if cause.same:
        first, count = printable(cause.same[0], 200), len(cause.same)
        which = f"1 other record: {first}" if count == 1 else f"{count:,} other records; the first is {first}"
        console.show(f"        the same API is off in {which}")


def _show_more(items: Sequence[object]) -> None:
    """Print the number of items that are not printed."""
    if len(items) > SHOWN:
        console.show(f"    and {len(items) - SHOWN} more")
