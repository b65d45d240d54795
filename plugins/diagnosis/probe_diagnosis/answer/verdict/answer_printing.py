"""The answer on the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from probe_core import console
from probe_core.errors import make_printable
from probe_core.model.answers import Answer, Finding, Outcome
from probe_diagnosis.answer.causes import phase_comparison
from probe_diagnosis.conditions.condition_sentences import format_lines as condition_lines
from probe_diagnosis.phases.phases_file import STEP_PHASES_FILE

HEADED_SUFFIXES = (".xlsx", ".csv", ".html")
"""Suffixes of tables whose header is counted as row 1."""

MAX_SHOWN_ITEMS = 5
"""Largest number of causes, notes and reasons for values that were not compared that are printed."""

MAX_CONDITION_LINES = 3
"""Largest number of lines on conditions that differ."""

MAX_LINE_CHARACTERS = 600
"""Largest number of characters of a line."""

OUTCOME_COLOURS = {
    Outcome.DIVERGED: "red",
    Outcome.AGREE: "green",
    Outcome.NOT_COMPARABLE: "yellow",
    Outcome.CANNOT_TELL: "yellow",
}


def print_answer(
    answer: Answer,
    file: Path | None,
    find_table: Callable[[Finding], str] = lambda cause: "",
    *,
    brief: bool,
    names_ranks: bool = False,
    is_measured: bool = True,
) -> None:
    """Print an answer: the verdict, and unless ``brief`` is set causes, coverage and what to do next.

    Args:
        answer: The answer.
        file: The file that it was written to; None for none.
        find_table: Returns the name of the file that contains the row of a cause; empty if there is none.
        brief: True to print the verdict and the file alone.
        names_ranks: True if there are several ranks, so that the rank of each cause is named.
        is_measured: False if no row of any table was measured. If the runs are not comparable, the verdict
            states that, and a count of compared numbers and texts is not printed.
    """
    styled = console.style(answer.outcome.value, fg=OUTCOME_COLOURS[answer.outcome], bold=True)
    console.show(f"{styled}: {make_printable(answer.text, MAX_LINE_CHARACTERS)}", wrap=True)
    for line in condition_lines(answer.conditions, MAX_CONDITION_LINES):
        console.show(f"  condition: {make_printable(line, MAX_LINE_CHARACTERS)}", wrap=True)
    if not brief:
        _show_causes(answer, find_table, names_ranks=names_ranks)
        _show_coverage(answer, is_measured=is_measured or answer.outcome is not Outcome.NOT_COMPARABLE)
    if file is not None:
        console.show(f"  wrote {file}")


def _show_causes(answer: Answer, find_table: Callable[[Finding], str], *, names_ranks: bool) -> None:
    """Print the causes and the notes."""
    for number, cause in enumerate(answer.causes[:MAX_SHOWN_ITEMS], 1):
        _show_cause(number, cause, find_table(cause), names_rank=names_ranks or bool(cause.rank))
    _show_more(answer.causes)
    if any(" against " in cause.reason.detail for cause in answer.causes[:MAX_SHOWN_ITEMS]):
        console.show("  (A against B: A in the target, B in the golden)")
    for note in answer.notes[:MAX_SHOWN_ITEMS]:
        console.show(f"  note: {make_printable(note.text, MAX_LINE_CHARACTERS)}", wrap=True)
    _show_more(answer.notes)


def _show_coverage(answer: Answer, *, is_measured: bool) -> None:
    """Print the number of values that were compared, the reasons for the others, and the next steps."""
    coverage = answer.coverage
    if is_measured:
        console.show(f"  compared: {coverage.compared:,} of {coverage.recorded:,} recorded values")
    if len(answer.unknown_conditions) == 1:
        console.show(f"    not compared: the conditions of the {answer.unknown_conditions[0]}, which were not recorded")
    for line in answer.missing[:MAX_SHOWN_ITEMS]:
        console.show(f"    not compared: {make_printable(line, MAX_LINE_CHARACTERS)}", wrap=True)
    _show_more(answer.missing)
    for line in answer.next:
        console.show(f"  next: {make_printable(line, MAX_LINE_CHARACTERS)}")


def _show_more(items: Sequence[object]) -> None:
    """Print the number of items that are not printed."""
    if len(items) > MAX_SHOWN_ITEMS:
        console.show(f"  and {len(items) - MAX_SHOWN_ITEMS} more")


def _show_cause(number: int, cause: Finding, table: str, *, names_rank: bool) -> None:
    """Print a cause: the call, the reason, the module and the line of code, and how much it explains."""
    header = ", counting the header" if table.endswith(HEADED_SUFFIXES) else ""
    line = f"  (row {cause.line}{table and f' of {table}{header}'})" if cause.line else ""
    if cause.reason.code == phase_comparison.KIND:
        line = f"  (a phase of the step, in {STEP_PHASES_FILE})"
    rank_clause = f"rank {cause.rank}, " if names_rank else ""
    name = console.style(make_printable(cause.op), bold=True)
    console.show(f"  {number}. {rank_clause}{name}{line}", wrap=True)
    console.show(f"        {make_printable(cause.reason.detail, MAX_LINE_CHARACTERS)}", wrap=True)
    if cause.modules:
        console.show(f"        in {make_printable(cause.modules[0], 200)}")
    if cause.where:
        console.show(f"        {make_printable(cause.where, 200)}", wrap=True)
    if cause.caller:
        console.show(f"        called by {make_printable(cause.caller, 200)}", wrap=True)
    if cause.same:
        _show_calls("the same argument differs in", "other call", len(cause.same), cause.same[0])
    if cause.consequence_count:
        _show_calls("values differ in", "later call", cause.consequence_count, cause.consequences[0])


def _show_calls(beginning: str, noun: str, count: int, first: str) -> None:
    """Print a number of calls, and the first of them."""
    name = make_printable(first, 200)
    calls = f"1 {noun}: {name}" if count == 1 else f"{count:,} {noun}s; the first is {name}"
    console.show(f"        {beginning} {calls}", wrap=True)
