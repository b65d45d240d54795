"""Verdict on a run, printed on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from probe_core import console
from probe_core.errors import make_printable
from probe_explain.verdict import ExplainCause, ExplainOutcome, ExplainVerdict

MAX_SHOWN_ITEMS = 5
"""Largest number of causes that are printed, and of reasons."""
MAX_LINE_CHARACTERS = 600
"""Largest number of characters of a line."""
OUTCOME_COLORS = {
    ExplainOutcome.INTRODUCED: "red",
    ExplainOutcome.WITHIN: "green",
    ExplainOutcome.CANNOT_TELL: "yellow",
}


def print_verdict(verdict: ExplainVerdict, files: Sequence[Path], *, brief: bool = False) -> None:
    """Print the verdict, and unless ``brief`` is set its causes and the records that it rests on."""
    styled = console.style(verdict.outcome.value, fg=OUTCOME_COLORS[verdict.outcome], bold=True)
    console.show(f"{styled}: {make_printable(verdict.text, MAX_LINE_CHARACTERS)}")
    if not brief:
        for number, cause in enumerate(verdict.causes[:MAX_SHOWN_ITEMS], 1):
            _show_cause(number, cause, names_rank=verdict.names_ranks or bool(cause.worst_result.rank))
        _show_hidden_count(verdict.causes)
        console.show(f"  computed again: {verdict.judged:,} of {verdict.recorded:,} records")
        for reason in verdict.missing[:MAX_SHOWN_ITEMS]:
            console.show(f"    not computed: {make_printable(reason.sentence, MAX_LINE_CHARACTERS)}")
        _show_hidden_count(verdict.missing)
        if verdict.fragile:
            console.show(f"  {make_printable(verdict.fragile, MAX_LINE_CHARACTERS)}")
    for file in files:
        console.show(f"  wrote {file}")


def _show_cause(number: int, cause: ExplainCause, *, names_rank: bool) -> None:
    worst = cause.worst_result
    place = f"{worst.step}, " if worst.step else ""
    place += f"rank {worst.rank}, " if names_rank else ""
    console.show(f"  {number}. {place}{console.style(make_printable(worst.op), bold=True)}")
    console.show(f"        {make_printable(cause.statement, MAX_LINE_CHARACTERS)}")
    if worst.modules:
        console.show(f"        in {make_printable(worst.modules[0], 200)}")
    if worst.where:
        console.show(f"        {make_printable(worst.where, 200)}")
    if cause.other_records:
        first, count = make_printable(cause.other_records[0], 200), len(cause.other_records)
        which = f"1 other record: {first}" if count == 1 else f"{count:,} other records; the first is {first}"
        console.show(f"        the same API returns too large errors in {which}")


def _show_hidden_count(items: Sequence[object]) -> None:
    """Print the number of items that are not printed."""
    if len(items) > MAX_SHOWN_ITEMS:
        console.show(f"    and {len(items) - MAX_SHOWN_ITEMS} more")
