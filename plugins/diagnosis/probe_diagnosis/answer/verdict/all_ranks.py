"""The verdict on all ranks and steps together (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from probe_core.errors import format_count
from probe_core.model.answers import Answer, Condition, Coverage, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer.references import baseline
from probe_diagnosis.answer.references import reference as reference_answers
from probe_diagnosis.answer.verdict.rank_verdict import (
    describe_agreement,
    describe_further_runs,
    format_first_line,
    suggest_next_steps,
)
from probe_diagnosis.conditions.differences import sort_by_effect
from probe_diagnosis.timeline.coverage import CoverageTally, describe_reason

OUTCOMES_BY_SEVERITY = (Outcome.AGREE, Outcome.CANNOT_TELL, Outcome.NOT_COMPARABLE, Outcome.DIVERGED)
"""Outcomes of ranks: that of all ranks is the last of them that occurs."""

OUTCOME_PHRASES = {
    Outcome.AGREE: "agree",
    Outcome.DIVERGED: "diverged",
    Outcome.NOT_COMPARABLE: "cannot be compared",
    Outcome.CANNOT_TELL: "cannot be decided",
}
"""Words on the comparisons that have the outcome of all."""


def merge_answers(
    answers: Mapping[str, Answer], causes: Sequence[Finding], failed: int, *, is_multi_rank: bool = False,
    later: Collection[str] = (),
) -> Answer:  # fmt: skip
    """Return the verdict on all ranks. A single comparison keeps its own verdict.

    Args:
        answers: The verdict on each rank that was compared, by the names of step and rank.
        causes: The causes over all ranks, in the order of cause and effect.
        failed: Number of ranks that could not be compared.
        is_multi_rank: True if the comparisons are of several ranks, not only of several steps.
        later: The names of comparisons of steps after the first step that diverged. They add no notes, because
            their differences may follow from that step.
    """
    ranks = list(answers.values())
    count = len(answers) + failed
    if count == 1:
        return ranks[0]
    coverage = _sum_coverage(ranks)
    baseline_counts = baseline.merge_baselines([answer.baseline for answer in ranks if answer.baseline])
    reference = reference_answers.merge_references([answer.reference for answer in ranks if answer.reference])
    outcome = max((answer.outcome for answer in ranks), key=OUTCOMES_BY_SEVERITY.index)
    if failed and outcome is Outcome.AGREE:
        outcome = Outcome.CANNOT_TELL
    decisive_answers = {name: answer for name, answer in answers.items() if answer.outcome is outcome}
    if outcome is Outcome.DIVERGED and causes:
        text = format_first_line(causes[0], is_multi_rank=is_multi_rank)
    elif outcome is Outcome.AGREE:
        text = _describe_agreement(ranks, causes, coverage, baseline_counts, reference, is_multi_rank=is_multi_rank)
    else:
        text = (
            _quote_first_answer(decisive_answers) or f"{failed} of {count} comparisons did not finish; the others agree"
        )
    if decisive_answers:
        text += f" ({len(decisive_answers)} of {count} comparisons {OUTCOME_PHRASES[outcome]})"
    decisive = next(iter(decisive_answers.values()), ranks[0])
    counted_values = CoverageTally(both=coverage.recorded, lacking=Counter(coverage.excused))
    named = {cause.op for cause in causes}
    decisive_steps = decisive.next if not causes or any(candidate.op in named for candidate in decisive.causes) else ()
    steps = tuple(dict.fromkeys([*suggest_next_steps(outcome, counted_values), *decisive_steps]))
    relevant_answers = {name: answer for name, answer in answers.items() if name not in later}
    notes = _merge_notes(relevant_answers, baseline_counts, reference, named if outcome is Outcome.DIVERGED else ())
    missing = _merge_missing(ranks, coverage.excused)
    return Answer(
        outcome, text, tuple(causes), coverage, missing, steps, notes, baseline_counts, reference=reference,
        conditions=_merge_conditions(relevant_answers, is_multi_rank=is_multi_rank),
        unknown_conditions=_merge_unknown_conditions(ranks),
    )  # fmt: skip


def _quote_first_answer(answers: Mapping[str, Answer]) -> str:
    """Return the text of the first answer with the name of its comparison; empty without answers."""
    for name, answer in answers.items():
        return f"{name}: {answer.text}" if name else answer.text
    return ""


def _sum_coverage(ranks: Sequence[Answer]) -> Coverage:
    """Return the sums of all counts."""
    counts: Counter[str] = Counter()
    for answer in ranks:
        counts.update(answer.coverage.excused)
    parts = [answer.coverage for answer in ranks]
    return Coverage(
        sum(part.recorded for part in parts), sum(part.compared for part in parts), dict(counts),
        sum(part.equal for part in parts), sum(part.other_arguments for part in parts),
    )  # fmt: skip


def _describe_agreement(
    ranks: Sequence[Answer], causes: Sequence[Finding], coverage: Coverage, baseline_counts: Mapping[str, Any],
    reference: Mapping[str, Any], *, is_multi_rank: bool,
) -> str:  # fmt: skip
    tally = CoverageTally(
        compared=coverage.compared, equal=coverage.equal, lacking=Counter(coverage.excused),
        other_arguments=coverage.other_arguments,
    )  # fmt: skip
    notes = [note for answer in ranks for note in answer.notes]
    return describe_agreement(tally, causes, notes, baseline_counts, reference, is_multi_rank=is_multi_rank)


def _merge_notes(
    answers: Mapping[str, Answer],
    baseline_counts: Mapping[str, Any],
    reference: Mapping[str, Any],
    named: Collection[str],
) -> tuple[Note, ...]:
    """Return the notes of all comparisons, except for notes on calls that are causes.

    Of several notes on the same call, the first is returned. It names its comparison.
    """
    notes: dict[tuple[NoteKind, str], Note] = {}
    for name, answer in answers.items():
        for note in answer.notes:
            if note.kind not in (NoteKind.BASELINE, NoteKind.REFERENCE) and not (note.op and note.op in named):
                text = f"in {name}, {note.text}" if note.op and len(answers) > 1 else note.text
                notes.setdefault((note.kind, note.op or note.text), note._replace(text=text))
    return (*notes.values(), *describe_further_runs(baseline_counts, reference))


def _merge_conditions(answers: Mapping[str, Answer], *, is_multi_rank: bool) -> tuple[Condition, ...]:
    """Return the conditions that differ in any comparison, each as the first of them states it.

    A condition that differs on some ranks only names the first of them.
    """
    groups: dict[tuple[str, str], list[Condition]] = {}
    for answer in answers.values():
        for condition in answer.conditions:
            groups.setdefault((condition.kind, condition.name), []).append(condition)
    count = len({name.rpartition("/")[2] for name in answers}) if is_multi_rank else 1
    return tuple(sort_by_effect(_merge_equal_conditions(group, count) for group in groups.values()))


def _merge_equal_conditions(group: Sequence[Condition], count: int) -> Condition:
    """Return the first of equal conditions; it names its rank if not all of ``count`` ranks state it."""
    first = group[0]
    is_of_all = len({condition.rank for condition in group}) >= count
    return first if is_of_all else first._replace(text=f"on rank {first.rank}, {first.text}")


def _merge_unknown_conditions(ranks: Sequence[Answer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(side for rank in ranks for side in rank.unknown_conditions))


def _merge_missing(ranks: Sequence[Answer], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is missing of all ranks: the sentences on their runs, then the counts of all of them."""
    on_runs = dict.fromkeys(text for rank in ranks for text in rank.incomplete)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return (*on_runs, *(f"{format_count(count, 'value')} {describe_reason(code)}" for code, count in ordered))
