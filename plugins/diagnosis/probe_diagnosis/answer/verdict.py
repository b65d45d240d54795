"""The verdict on one rank (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PureWindowsPath  # which knows both separators
from typing import Any

from probe_core.errors import counted
from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer import baseline, ladder
from probe_diagnosis.answer import reference as third
from probe_diagnosis.difference.reasons import PHASES, Cause
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.coverage import (
    GOLDEN_ONLY,
    HARMLESS,
    NAMED,
    TARGET_ONLY,
    Tally,
    words_of,
)

_LINE = re.compile(r"File (.+?), (line \d+, in [^,]+)")
"""The path of a line of code, and its number with the function."""

INTERRUPTED = "the comparison was interrupted before its end"
"""Sentence on a comparison that was stopped before its end."""


def answer_of(
    causes: Sequence[Finding],
    differently: Sequence[Finding],
    tally: Tally,
    *,
    notes: Sequence[Note] = (),
    doubt: str = "",
    interrupted: bool = False,
    unfinished: Sequence[str] = (),
    measured: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    advice: Sequence[str] = (),
    several: bool = False,
) -> Answer:
    """Return the verdict on one rank.

    Args:
        causes: The causes of differences, the first to look at before all others.
        differently: Calls that were made differently, but whose values agree.
        tally: The counts of values that were compared.
        notes: Statements on calls that differ, but are no causes.
        doubt: The reason why the causes do not show that the runs diverged; empty if they do.
        interrupted: True if rows are missing because the comparison was interrupted.
        unfinished: Sentences on runs whose record is incomplete.
        measured: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        advice: What else to do next.
        several: True if the runs have several ranks, so that the sentence names this one.
    """
    incomplete = (*unfinished, *((INTERRUPTED,) if interrupted else ()))
    coverage = tally.coverage()
    outcome = _outcome(causes, tally, doubt=doubt, interrupted=interrupted)
    if outcome is Outcome.DIVERGED:
        text = f"{first_line(causes[0], several=several)}{_share(tally)}"
    elif outcome is Outcome.AGREE:
        text = agreement(tally, differently, notes, measured, reference, several=several)
    elif outcome is Outcome.NOT_COMPARABLE:
        text = _not_comparable(tally)
    else:
        text = _undecided(causes, tally, doubt=doubt, interrupted=interrupted, several=several)
    if measured:
        notes = (*notes, Note(NoteKind.BASELINE, baseline.sentence(measured)))
    if reference:
        notes = (*notes, Note(NoteKind.REFERENCE, third.sentence(reference)))
    return Answer(
        outcome,
        text,
        (*causes, *differently),
        coverage,
        (*incomplete, *tally.sentences()),
        (*next_steps(outcome, tally), *advice),
        tuple(notes),
        measured or {},
        incomplete,
        reference=reference or {},
    )


def _outcome(causes: Sequence[Finding], tally: Tally, *, doubt: str, interrupted: bool) -> Outcome:
    limit = limits()
    if tally.share < limit.comparable or (tally.tensors and not tally.tensors_compared):
        return Outcome.NOT_COMPARABLE
    if causes:
        return Outcome.CANNOT_TELL if doubt else Outcome.DIVERGED
    if interrupted or tally.failing_at or tally.unexcused or tally.least_beside < limit.enough:
        return Outcome.CANNOT_TELL
    return Outcome.AGREE


def first_line(cause: Finding, *, several: bool) -> str:
    """Return the sentence on the first cause in brief, without its end; the cause itself holds the rest."""
    line = _LINE.match(cause.where)
    place = cause.where if line is None else f"{PureWindowsPath(line[1]).name}, {line[2]}"
    where = f", at {place}" if place else ""
    rank = f"on rank {cause.rank}, " if several or cause.rank else ""
    step = f"in {cause.step}, " if cause.step else ""
    subjects = {ladder.KIND: PHASES, Cause.CONDITION.value: "", Cause.NOT_RESTORED.value: ""}
    subject = subjects.get(cause.reason.code, f"{cause.op} ")
    return f"{step}{rank}{subject}{cause.brief or cause.reason.detail}{where}"


def _share(tally: Tally) -> str:
    """Return an addition to a verdict that rests on a part of the target."""
    if tally.share >= limits().enough:
        return ""
    return f"; only {tally.share:.0%} of the target's floating-point tensors could be compared"


def agreement(
    tally: Tally,
    differently: Sequence[Finding],
    notes: Sequence[Note],
    measured: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    *,
    several: bool,
) -> str:
    """Return the sentence on runs that agree.

    Args:
        tally: The counts of values.
        differently: Calls that were made differently.
        notes: Statements on calls that differ, but are no causes.
        measured: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        several: True if there are several ranks, so that the sentence names that of a call.
    """
    parts = _agreeing_values(tally, notes, measured, reference)
    parts += [
        f"besides, {counted(tally.lacking[code], 'value')} {words_of(code)}"
        for code in sorted(HARMLESS | NAMED)
        if tally.lacking[code]
    ]
    alone = tally.lacking[TARGET_ONLY] + tally.lacking[GOLDEN_ONLY]
    if alone:
        first = next((tally.first[code] for code in (TARGET_ONLY, GOLDEN_ONLY) if code in tally.first), "")
        by = ", by calls whose results agree" if any(tally.stood_for) else ""
        text = "1 more was" if alone == 1 else f"{alone:,} more were"
        parts.append(f"{text} recorded in one run only{by}{_named(alone, first)}")
    if differently:
        count = len(differently)
        calls = "1 call was" if count == 1 else f"{count} calls were"
        rank = f" on rank {differently[0].rank}" if several else ""
        parts.append(f"{calls} made differently{_named(count, f'{differently[0].op}{rank}')}")
    return "; ".join(parts)


def _agreeing_values(
    tally: Tally,
    notes: Sequence[Note],
    measured: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None,
) -> list[str]:
    """Return the clauses on the values that agree."""
    count = tally.compared - tally.other_arguments
    nearer = third.clause(reference or {})
    count -= reference["values"] if nearer and reference else 0
    other = " other" if tally.other_arguments or nearer else ""
    every = f"the only{other} value" if count == 1 else f"all {count:,}{other} values"
    every += " that both runs recorded"
    is_equal = tally.equal == count
    parts = [f"equal in {every}" if is_equal else f"within rounding in {every}"]
    gone = [note for note in notes if note.kind is NoteKind.NO_EFFECT]
    if gone:
        parts = [
            f"within rounding in {every}, but for differences without an effect on what follows, "
            f"the first of them in {gone[0].op}"
        ]
    elif measured and measured["raised"]:
        parts = [f"within rounding, or within what the baseline explains, in {every}"]
    return [nearer, *(parts if count else ())] if nearer else parts


def _named(count: int, first: str) -> str:
    """Return an addition to a clause on ``count`` items that names the first of them, if it is known."""
    if not first:
        return ""
    return f": {first}" if count == 1 else f", the first of them {first}"


def _not_comparable(tally: Tally) -> str:
    owner = "the target's"
    if tally.floats[0]:
        compared, count, noun = tally.floats_compared[0], tally.floats[0], "floating-point tensor"
    elif tally.tensors and not tally.tensors_compared:
        owner, compared, count, noun = "the", 0, tally.tensors, "recorded tensor"
    else:
        compared, count, noun = tally.compared, tally.both + tally.lacking[TARGET_ONLY], "value"
    if count == 1:
        return f"{owner} only {noun} could not be compared{_most(tally)}"
    share = f"only {compared:,}" if compared else "none"
    return f"{share} of {owner} {counted(count, noun)} could be compared{_most(tally)}"


def _undecided(
    causes: Sequence[Finding], tally: Tally, *, doubt: str, interrupted: bool, several: bool
) -> str:
    if interrupted:
        return "the comparison was interrupted, and nothing that was compared until then differs"
    if causes and doubt:
        return f"{first_line(causes[0], several=several)}; {doubt}"
    if tally.failing_at:
        return (
            f"{_errors(tally)} by the rule of the table, although no value differs by more than rounding "
            "explains"
        )
    if tally.unexcused:
        were = "was" if tally.unexcused == 1 else "were"
        values = counted(tally.unexcused, "value")
        return f"nothing that was compared differs, but {values} {were} not{_most(tally)}"
    whose = "target" if tally.share == tally.least_share else "golden"
    return (
        f"nothing that was compared differs, but only {tally.least_share:.0%} of the {whose}'s "
        f"floating-point tensors were{_most(tally)}"
    )


def _errors(tally: Tally) -> str:
    """Return a clause with the number of rows that are errors though they agree, and the first of them."""
    first, count = next(iter(tally.failing_at)), len(tally.failing_at)
    return f"{first} is an error" if count == 1 else f"{count:,} rows are errors, the first of them {first},"


def _most(tally: Tally) -> str:
    """Return the most frequent reason why values were not compared, as an addition to a sentence."""
    sentences = tally.sentences()
    return f" ({sentences[0]})" if sentences else ""


def next_steps(outcome: Outcome, tally: Tally) -> tuple[str, ...]:
    """Return what to do next."""
    steps: list[str] = []
    codes = tally.lacking
    if codes["shifted"]:
        steps.append("Compare again with --match align, which pairs calls by what they do.")
    if outcome in (Outcome.NOT_COMPARABLE, Outcome.CANNOT_TELL):
        if codes[TARGET_ONLY] + codes[GOLDEN_ONLY] > tally.both:
            steps.append(
                "Check that both runs are of the same model, record them with the same level and scope, and "
                "compare again."
            )
        if codes["unreadable"] + codes["no_target_file"] + codes["no_golden_file"]:
            steps.append("Copy or record the missing tensor files again, and compare again.")
        if codes["not_recorded"]:
            steps.append("Record both runs with task tensor or statistics, and compare again.")
    return tuple(steps)
