"""The verdict on one rank (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PureWindowsPath  # which knows both separators
from typing import Any

from probe_core.errors import format_count
from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer import baseline, phase_comparison
from probe_diagnosis.answer import reference as third
from probe_diagnosis.difference.reasons import PHASES_INTRO, Cause
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.coverage import (
    GOLDEN_ONLY,
    HARMLESS_REASONS,
    NAMED_REASONS,
    TARGET_ONLY,
    CoverageTally,
    describe_reason,
)

_LINE_PATTERN = re.compile(r"File (.+?), (line \d+, in [^,]+)")
"""The path of a line of code, and its number with the function."""

INTERRUPTED_SENTENCE = "the comparison was interrupted before its end"
"""Sentence on a comparison that was stopped before its end."""


def build_rank_answer(
    causes: Sequence[Finding],
    differently: Sequence[Finding],
    tally: CoverageTally,
    *,
    notes: Sequence[Note] = (),
    doubt: str = "",
    interrupted: bool = False,
    unfinished: Sequence[str] = (),
    baseline_counts: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    advice: Sequence[str] = (),
    multi_rank: bool = False,
) -> Answer:
    """Return the verdict on one rank.

    Args:
        causes: The causes of differences, the first to look at before all others.
        differently: Calls with different arguments, but whose values agree.
        tally: The counts of values that were compared.
        notes: Statements on calls that differ, but are no causes.
        doubt: The reason why the causes do not show that the runs diverged; empty if they do.
        interrupted: True if rows are missing because the comparison was interrupted.
        unfinished: Sentences on runs whose record is incomplete.
        baseline_counts: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        advice: What else to do next.
        multi_rank: True if the runs have several ranks, so that the sentence names this one.
    """
    incomplete = (*unfinished, *((INTERRUPTED_SENTENCE,) if interrupted else ()))
    coverage = tally.build_coverage()
    outcome = _decide_outcome(causes, tally, doubt=doubt, interrupted=interrupted)
    if outcome is Outcome.DIVERGED:
        text = f"{format_first_line(causes[0], multi_rank=multi_rank)}{_describe_share(tally)}"
    elif outcome is Outcome.AGREE:
        text = describe_agreement(tally, differently, notes, baseline_counts, reference, multi_rank=multi_rank)
    elif outcome is Outcome.NOT_COMPARABLE:
        text = _describe_not_comparable(tally)
    else:
        text = _describe_undecided(causes, tally, doubt=doubt, interrupted=interrupted, multi_rank=multi_rank)
    if baseline_counts:
        notes = (*notes, Note(NoteKind.BASELINE, baseline.describe_baseline(baseline_counts)))
    if reference:
        notes = (*notes, Note(NoteKind.REFERENCE, third.describe_reference(reference)))
    return Answer(
        outcome,
        text,
        (*causes, *differently),
        coverage,
        (*incomplete, *tally.format_reasons()),
        (*suggest_next_steps(outcome, tally), *advice),
        tuple(notes),
        baseline_counts or {},
        incomplete,
        reference=reference or {},
    )


def _decide_outcome(causes: Sequence[Finding], tally: CoverageTally, *, doubt: str, interrupted: bool) -> Outcome:
    limit = limits()
    if tally.share < limit.comparable or (tally.tensors and not tally.tensors_compared):
        return Outcome.NOT_COMPARABLE
    if causes:
        return Outcome.CANNOT_TELL if doubt else Outcome.DIVERGED
    if interrupted or tally.failing_at or tally.unexcused or tally.least_adjusted_share < limit.enough:
        return Outcome.CANNOT_TELL
    return Outcome.AGREE


def format_first_line(cause: Finding, *, multi_rank: bool) -> str:
    """Return the sentence on the first cause in brief, without its end; the cause itself holds the rest."""
    line = _LINE_PATTERN.match(cause.where)
    place = cause.where if line is None else f"{PureWindowsPath(line[1]).name}, {line[2]}"
    where = f", at {place}" if place else ""
    rank = f"on rank {cause.rank}, " if multi_rank or cause.rank else ""
    step = f"in {cause.step}, " if cause.step else ""
    subjects = {phase_comparison.KIND: PHASES_INTRO, Cause.CONDITION.value: "", Cause.NOT_RESTORED.value: ""}
    subject = subjects.get(cause.reason.code, f"{cause.op} ")
    return f"{step}{rank}{subject}{cause.brief or cause.reason.detail}{where}"


def _describe_share(tally: CoverageTally) -> str:
    """Return an addition to a verdict that rests on a part of the target."""
    if tally.share >= limits().enough:
        return ""
    return f"; only {tally.share:.0%} of the target's floating-point tensors could be compared"


def describe_agreement(
    tally: CoverageTally,
    differently: Sequence[Finding],
    notes: Sequence[Note],
    baseline_counts: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    *,
    multi_rank: bool,
) -> str:
    """Return the sentence on runs that agree.

    Args:
        tally: The counts of values.
        differently: Calls with different arguments.
        notes: Statements on calls that differ, but are no causes.
        baseline_counts: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        multi_rank: True if there are several ranks, so that the sentence names that of a call.
    """
    parts = _describe_agreeing_values(tally, notes, baseline_counts, reference)
    parts += [
        f"besides, {format_count(tally.lacking[code], 'value')} {describe_reason(code)}"
        for code in sorted(HARMLESS_REASONS | NAMED_REASONS)
        if tally.lacking[code]
    ]
    alone = tally.lacking[TARGET_ONLY] + tally.lacking[GOLDEN_ONLY]
    if alone:
        first = next((tally.first[code] for code in (TARGET_ONLY, GOLDEN_ONLY) if code in tally.first), "")
        by = ", by calls whose results agree" if any(tally.stood_for) else ""
        text = "1 more was" if alone == 1 else f"{alone:,} more were"
        parts.append(f"{text} recorded in one run only{by}{_name_first(alone, first)}")
    if differently:
        count = len(differently)
        calls = "1 call was" if count == 1 else f"{count} calls were"
        rank = f" on rank {differently[0].rank}" if multi_rank else ""
        parts.append(f"{calls} made differently{_name_first(count, f'{differently[0].op}{rank}')}")
    return "; ".join(parts)


def _describe_agreeing_values(
    tally: CoverageTally,
    notes: Sequence[Note],
    baseline_counts: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None,
) -> list[str]:
    """Return the clauses on the values that agree."""
    count = tally.compared - tally.other_arguments
    nearer = third.describe_excused_values(reference or {})
    count -= reference["values"] if nearer and reference else 0
    qualifier = " other" if tally.other_arguments or nearer else ""
    every = f"the only{qualifier} value" if count == 1 else f"all {count:,}{qualifier} values"
    every += " that both runs recorded"
    is_equal = tally.equal == count
    parts = [f"equal in {every}" if is_equal else f"within rounding in {every}"]
    gone = [note for note in notes if note.kind is NoteKind.NO_EFFECT]
    if gone:
        parts = [
            f"within rounding in {every}, but for differences without an effect on what follows, "
            f"the first of them in {gone[0].op}"
        ]
    elif baseline_counts and baseline_counts["raised"]:
        parts = [f"within rounding, or within what the baseline explains, in {every}"]
    return [nearer, *(parts if count else ())] if nearer else parts


def _name_first(count: int, first: str) -> str:
    """Return an addition to a clause on ``count`` items that names the first of them, if it is known."""
    if not first:
        return ""
    return f": {first}" if count == 1 else f", the first of them {first}"


def _describe_not_comparable(tally: CoverageTally) -> str:
    owner = "the target's"
    if tally.floats[0]:
        compared, count, noun = tally.floats_compared[0], tally.floats[0], "floating-point tensor"
    elif tally.tensors and not tally.tensors_compared:
        owner, compared, count, noun = "the", 0, tally.tensors, "recorded tensor"
    else:
        compared, count, noun = tally.compared, tally.both + tally.lacking[TARGET_ONLY], "value"
    if count == 1:
        return f"{owner} only {noun} could not be compared{_describe_main_reason(tally)}"
    share = f"only {compared:,}" if compared else "none"
    return f"{share} of {owner} {format_count(count, noun)} could be compared{_describe_main_reason(tally)}"


def _describe_undecided(
    causes: Sequence[Finding], tally: CoverageTally, *, doubt: str, interrupted: bool, multi_rank: bool
) -> str:
    if interrupted:
        return "the comparison was interrupted, and no value compared before that differs"
    if causes and doubt:
        return f"{format_first_line(causes[0], multi_rank=multi_rank)}; {doubt}"
    if tally.failing_at:
        return (
            f"{_describe_errors(tally)} by the rule of the table, although no value differs by more than rounding "
            "explains"
        )
    if tally.unexcused:
        were = "was" if tally.unexcused == 1 else "were"
        values = format_count(tally.unexcused, "value")
        return f"no compared value differs, but {values} {were} not compared{_describe_main_reason(tally)}"
    whose = "target" if tally.share == tally.least_share else "golden"
    return (
        f"no compared value differs, but only {tally.least_share:.0%} of the {whose}'s "
        f"floating-point tensors were compared{_describe_main_reason(tally)}"
    )


def _describe_errors(tally: CoverageTally) -> str:
    """Return a clause with the number of rows that are errors though they agree, and the first of them."""
    first, count = next(iter(tally.failing_at)), len(tally.failing_at)
    return f"{first} is an error" if count == 1 else f"{count:,} rows are errors, the first of them {first},"


def _describe_main_reason(tally: CoverageTally) -> str:
    """Return the most frequent reason why values were not compared, as an addition to a sentence."""
    sentences = tally.format_reasons()
    return f" ({sentences[0]})" if sentences else ""


def suggest_next_steps(outcome: Outcome, tally: CoverageTally) -> tuple[str, ...]:
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
