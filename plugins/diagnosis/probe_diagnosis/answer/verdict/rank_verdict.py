"""The verdict on one rank (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probe_core.errors import format_count
from probe_core.model.answers import Answer, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer.causes import phase_comparison
from probe_diagnosis.answer.references import baseline
from probe_diagnosis.answer.references.reference import describe_excused_values, describe_reference
from probe_diagnosis.difference.reason_statement import PHASES_INTRO
from probe_diagnosis.difference.reasons import CauseKind
from probe_diagnosis.frames import shorten_frame
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.coverage import (
    GOLDEN_ONLY,
    HARMLESS_REASONS,
    NAMED_REASONS,
    TARGET_ONLY,
    CoverageTally,
    describe_reason,
)

INTERRUPTED_CLAUSE = "the comparison was interrupted before its end"
"""Reason for an incomplete answer if the user interrupted the comparison."""


def build_rank_answer(
    causes: Sequence[Finding],
    altered_calls: Sequence[Finding],
    tally: CoverageTally,
    *,
    notes: Sequence[Note] = (),
    doubt: str = "",
    is_interrupted: bool = False,
    unfinished: Sequence[str] = (),
    baseline_counts: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    advice: Sequence[str] = (),
    is_multi_rank: bool = False,
) -> Answer:
    """Return the verdict on one rank.

    Args:
        causes: The causes of differences, the most important cause first.
        altered_calls: Calls with different arguments or dtypes whose outputs agree.
        tally: The counts of values that were compared.
        notes: Statements on calls that differ without being causes.
        doubt: The reason why the causes do not show that the runs diverged; empty if they do.
        is_interrupted: True if rows are missing because the comparison was interrupted.
        unfinished: Sentences on runs whose record is incomplete.
        baseline_counts: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        advice: Further steps to suggest.
        is_multi_rank: True if the runs have several ranks, so that the sentence names this one.
    """
    incomplete = (*unfinished, *((INTERRUPTED_CLAUSE,) if is_interrupted else ()))
    outcome = _decide_outcome(causes, tally, doubt=doubt, is_interrupted=is_interrupted)
    if outcome is Outcome.DIVERGED:
        text = f"{format_first_line(causes[0], is_multi_rank=is_multi_rank)}{_describe_share(tally)}"
    elif outcome is Outcome.AGREE:
        text = describe_agreement(tally, altered_calls, notes, baseline_counts, reference, is_multi_rank=is_multi_rank)
    elif outcome is Outcome.NOT_COMPARABLE:
        text = _describe_not_comparable(tally)
    else:
        text = _describe_undecided(
            causes, tally, doubt=doubt, is_interrupted=is_interrupted, is_multi_rank=is_multi_rank
        )
    return Answer(
        outcome,
        text,
        (*causes, *altered_calls),
        tally.build_coverage(),
        (*incomplete, *tally.format_reasons()),
        (*suggest_next_steps(outcome, tally), *advice),
        (*notes, *describe_further_runs(baseline_counts, reference)),
        baseline_counts or {},
        incomplete,
        reference=reference or {},
    )


def describe_further_runs(
    baseline_counts: Mapping[str, Any] | None, reference: Mapping[str, Any] | None
) -> Iterator[Note]:
    """Yield the notes on the baseline and on the reference, if there are any."""
    if baseline_counts:
        yield Note(NoteKind.BASELINE, baseline.describe_baseline(baseline_counts))
    if reference:
        yield Note(NoteKind.REFERENCE, describe_reference(reference))


def _decide_outcome(causes: Sequence[Finding], tally: CoverageTally, *, doubt: str, is_interrupted: bool) -> Outcome:
    answer_limits = limits()
    if tally.share < answer_limits.min_comparable_share or (tally.tensors and not tally.tensors_compared):
        return Outcome.NOT_COMPARABLE
    if causes:
        return Outcome.CANNOT_TELL if doubt else Outcome.DIVERGED
    if (
        is_interrupted
        or tally.failing_at
        or tally.unexcused
        or tally.least_adjusted_share < answer_limits.min_agreement_share
    ):
        return Outcome.CANNOT_TELL
    return Outcome.AGREE


def format_first_line(cause: Finding, *, is_multi_rank: bool) -> str:
    """Return a short sentence on the first cause, without a period. The cause contains the full sentence."""
    where = f", at {shorten_frame(cause.where)}" if cause.where else ""
    rank_clause = f"on rank {cause.rank}, " if is_multi_rank or cause.rank else ""
    step_clause = f"in {cause.step}, " if cause.step else ""
    subjects = {phase_comparison.KIND: PHASES_INTRO, CauseKind.CONDITION.value: "", CauseKind.NOT_RESTORED.value: ""}
    subject = subjects.get(cause.reason.code, f"{cause.op} ")
    return f"{step_clause}{rank_clause}{subject}{cause.brief or cause.reason.detail}{where}"


def _describe_share(tally: CoverageTally) -> str:
    """Return a clause for a verdict that rests on a small share of the target; empty for others."""
    if tally.share >= limits().min_agreement_share:
        return ""
    return f"; only {tally.share:.0%} of the target's floating-point tensors could be compared"


def describe_agreement(
    tally: CoverageTally,
    altered_calls: Sequence[Finding],
    notes: Sequence[Note],
    baseline_counts: Mapping[str, Any] | None = None,
    reference: Mapping[str, Any] | None = None,
    *,
    is_multi_rank: bool,
) -> str:
    """Return the sentence on runs that agree.

    Args:
        tally: The counts of values.
        altered_calls: Calls with different arguments or dtypes whose outputs agree.
        notes: Statements on calls that differ without being causes.
        baseline_counts: The counts of the baseline; None or empty without one.
        reference: The counts of the reference; None or empty without one.
        is_multi_rank: True if there are several ranks, so that the sentence names the rank of a call.
    """
    parts = _describe_agreeing_values(tally, notes, baseline_counts, reference)
    omitted_values = [
        f"{format_count(tally.lacking[code], 'value')} {describe_reason(code)}"
        for code in sorted(HARMLESS_REASONS | NAMED_REASONS)
        if tally.lacking[code]
    ]
    if omitted_values:
        parts.append(f"not compared: {' and '.join(omitted_values)}")
    one_sided_count = tally.lacking[TARGET_ONLY] + tally.lacking[GOLDEN_ONLY]
    if one_sided_count:
        first = next((tally.first[code] for code in (TARGET_ONLY, GOLDEN_ONLY) if code in tally.first), "")
        caller_clause = ", by calls whose results agree" if any(tally.stood_for) else ""
        text = "1 further value was" if one_sided_count == 1 else f"{one_sided_count:,} further values were"
        parts.append(f"{text} recorded in one run only{caller_clause}{_name_first(one_sided_count, first)}")
    if altered_calls:
        count = len(altered_calls)
        calls = "1 call was" if count == 1 else f"{count} calls were"
        rank = f" on rank {altered_calls[0].rank}" if is_multi_rank else ""
        parts.append(f"{calls} made differently{_name_first(count, f'{altered_calls[0].op}{rank}')}")
    return "; ".join(parts)


def _describe_agreeing_values(
    tally: CoverageTally,
    notes: Sequence[Note],
    baseline_counts: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None,
) -> list[str]:
    """Return the clauses on the values that agree."""
    agreeing_count = tally.compared - tally.other_arguments
    excused_clause = describe_excused_values(reference or {})
    agreeing_count -= reference["values"] if excused_clause and reference else 0
    qualifier = " other" if tally.other_arguments or excused_clause else ""
    values_phrase = f"the only{qualifier} value" if agreeing_count == 1 else f"all {agreeing_count:,}{qualifier} values"
    values_phrase += " that both runs recorded"
    is_equal = tally.equal == agreeing_count
    parts = [f"equal in {values_phrase}" if is_equal else f"within rounding in {values_phrase}"]
    notes_without_effect = [note for note in notes if note.kind is NoteKind.NO_EFFECT]
    if notes_without_effect:
        parts = [
            f"within rounding in {values_phrase}, except for differences without an effect on later values, "
            f"the first is in {notes_without_effect[0].op}"
        ]
    elif baseline_counts and baseline_counts["raised"]:
        parts = [f"within rounding, or within what the baseline explains, in {values_phrase}"]
    return [excused_clause, *(parts if agreeing_count else ())] if excused_clause else parts


def _name_first(count: int, first: str) -> str:
    """Return the end of a clause on ``count`` items: the name of the first item, or an empty text if it is unknown."""
    if not first:
        return ""
    return f": {first}" if count == 1 else f", the first is {first}"


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
    causes: Sequence[Finding], tally: CoverageTally, *, doubt: str, is_interrupted: bool, is_multi_rank: bool
) -> str:
    if is_interrupted:
        return "the comparison was interrupted; all values that were compared until then agree"
    if causes and doubt:
        return f"{format_first_line(causes[0], is_multi_rank=is_multi_rank)}; {doubt}"
    if tally.failing_at:
        return (
            f"{_describe_errors(tally)} by the rule of the table, although no value differs by more than rounding "
            "explains"
        )
    if tally.unexcused:
        verb = "was" if tally.unexcused == 1 else "were"
        values = format_count(tally.unexcused, "value")
        return f"no compared value differs, but {values} {verb} not compared{_describe_main_reason(tally)}"
    side = "target" if tally.share == tally.least_share else "golden"
    return (
        f"no compared value differs, but only {tally.least_share:.0%} of the {side}'s "
        f"floating-point tensors were compared{_describe_main_reason(tally)}"
    )


def _describe_errors(tally: CoverageTally) -> str:
    """Return a clause on the rows that are errors in the table although their values agree."""
    first, count = next(iter(tally.failing_at)), len(tally.failing_at)
    return f"{first} is an error" if count == 1 else f"{count:,} rows, starting with {first}, are errors"


def _describe_main_reason(tally: CoverageTally) -> str:
    """Return the most frequent reason why values were not compared, as an addition to a sentence."""
    sentences = tally.format_reasons()
    return f" ({sentences[0]})" if sentences else ""


def suggest_next_steps(outcome: Outcome, tally: CoverageTally) -> tuple[str, ...]:
    """Return the steps to suggest to the user after a verdict."""
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
