"""Verdict on a run, printed on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core import console
from probe_core.errors import make_printable
from probe_explain.verdict import ExplainCause, ExplainOutcome, ExplainVerdict

MAX_SHOWN_ITEMS = 5
"""Largest number of causes and of reasons that are printed."""
MAX_LINE_CHARACTERS = 600
"""Largest number of characters of a line."""
OUTCOME_COLOURS = {
    ExplainOutcome.INTRODUCED: "red",
    ExplainOutcome.WITHIN: "green",
    ExplainOutcome.CANNOT_TELL: "yellow",
}


def print_verdict(verdict: ExplainVerdict, files: Sequence[Path], *, brief: bool = False) -> None:
    """Print the verdict, and unless ``brief`` is set its causes and the records that it rests on."""
    styled = console.style(verdict.outcome.value, fg=OUTCOME_COLOURS[verdict.outcome], bold=True)
    console.show(f"{styled}: {make_printable(verdict.text, MAX_LINE_CHARACTERS)}")
    if not brief:
        for number, cause in enumerate(verdict.causes[:MAX_SHOWN_ITEMS], 1):
            _show_cause(number, cause, names_rank=verdict.names_ranks or bool(cause.beyond.rank))
        _show_more(verdict.causes)
        console.show(f"  computed again: {verdict.judged:,} of {verdict.recorded:,} records")
        for reason in verdict.missing[:MAX_SHOWN_ITEMS]:
            console.show(f"    not: {make_printable(reason.sentence, MAX_LINE_CHARACTERS)}")
        _show_more(verdict.missing)
        if verdict.fragile:
            console.show(f"  {make_printable(verdict.fragile, MAX_LINE_CHARACTERS)}")
    for file in files:
        console.show(f"  wrote {file}")


def _show_cause(number: int, cause: ExplainCause, *, names_rank: bool) -> None:
    beyond = cause.beyond
    place = f"{beyond.step}, " if beyond.step else ""
    place += f"rank {beyond.rank}, " if names_rank else ""
    console.show(f"  {number}. {place}{console.style(make_printable(beyond.op), bold=True)}")
    console.show(f"        {make_printable(cause.statement, MAX_LINE_CHARACTERS)}")
    if beyond.modules:
        console.show(f"        in {make_printable(beyond.modules[0], 200)}")
    if beyond.where:
        console.show(f"        {make_printable(beyond.where, 200)}")
    if cause.same:
        first, count = make_printable(cause.same[0], 200), len(cause.same)
        which = f"1 other record: {first}" if count == 1 else f"{count:,} other records; the first is {first}"
        console.show(f"        the same API is off in {which}")


def _show_more(items: Sequence[object]) -> None:
    """Print the number of items that are not printed."""
    if len(items) > MAX_SHOWN_ITEMS:
        console.show(f"    and {len(items) - MAX_SHOWN_ITEMS} more")
