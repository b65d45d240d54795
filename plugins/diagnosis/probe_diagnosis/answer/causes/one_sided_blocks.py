"""Blocks of calls that only one run makes, next to a verdict that all compared values agree."""

from __future__ import annotations

from collections.abc import Iterator

from probe_core.errors import format_count
from probe_core.model.answers import Note, NoteKind
from probe_core.store.names import is_module
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.traced_call import SIDES
from probe_diagnosis.frames import shorten_frame
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.rank_facts import RankFacts


def describe_one_sided_blocks(facts: RankFacts, runs: ComparedRuns) -> Iterator[Note]:
    """Yield for each run a note on the line of code that makes most of the calls of that run only.

    No compared value shows what such calls compute, such as a moving average that the step does not use. Lines that
    make few calls are left out.
    """
    for side, keys in enumerate((facts.target_only, facts.golden_only)):
        calls_by_line: dict[str, list[str]] = {}
        for key in keys:
            if not is_module(key) and (line := runs.find_line(key, side)):
                calls_by_line.setdefault(line, []).append(key)
        line, calls = max(calls_by_line.items(), key=lambda item: len(item[1]), default=("", []))
        if len(calls) >= limits().min_block_calls:
            yield Note(NoteKind.HARMLESS, _describe_block(runs, side, line, calls), calls[0])


def _describe_block(runs: ComparedRuns, side: int, line: str, calls: list[str]) -> str:
    """Return a sentence on the calls that one line of code makes in one run only."""
    names, index = runs.both[side].names(), runs.both[side].find(calls[0])
    place = f"after {names[index - 1]}" if index else "at the beginning of the step"
    return (
        f"{shorten_frame(line)} makes {format_count(len(calls), 'call')} in the {SIDES[side]} only, "
        f"the first is {calls[0]} {place}; no compared value shows an effect of them"
    )
