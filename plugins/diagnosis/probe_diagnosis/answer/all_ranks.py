"""The verdict on all ranks and steps together (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from probe_core.errors import counted
from probe_core.model.answers import Answer, Condition, Coverage, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer import baseline
from probe_diagnosis.answer import reference as third
from probe_diagnosis.answer.verdict import agreement, first_line, next_steps
from probe_diagnosis.conditions.differences import in_order_of_effect
from probe_diagnosis.timeline.coverage import Tally, words_of

GRAVITY = (Outcome.AGREE, Outcome.CANNOT_TELL, Outcome.NOT_COMPARABLE, Outcome.DIVERGED)
"""Outcomes of ranks: that of all ranks is the last of them that occurs."""

ENDINGS = {
    Outcome.AGREE: "agree",
    Outcome.DIVERGED: "diverged",
    Outcome.NOT_COMPARABLE: "cannot be compared",
    Outcome.CANNOT_TELL: "cannot be decided",
}
"""Words on the comparisons that have the outcome of all."""


def over_all(
    answers: Mapping[str, Answer], causes: Sequence[Finding], failed: int, *, ranks_are_several: bool = False,
    later: Collection[str] = (),
) -> Answer:  # fmt: skip
    """Return the verdict on all ranks; of a single comparison, its own.

    Args:
        answers: The verdict on each rank that was compared, by the names of step and rank.
        causes: The causes over all ranks, in the order of cause and effect.
        failed: Number of ranks that could not be compared.
        ranks_are_several: True if they are of several ranks, not only of several steps.
        later: The names of comparisons of steps after the first one that diverged. They add no notes, because
            what differs in them may follow from that step.
    """
    ranks = list(answers.values())
    count = len(answers) + failed
    if count == 1:
        return ranks[0]
    coverage = _coverage(ranks)
    measured = baseline.together([answer.baseline for answer in ranks if answer.baseline])
    reference = third.merge([answer.reference for answer in ranks if answer.reference])
    outcome = max((answer.outcome for answer in ranks), key=GRAVITY.index)
    if failed and outcome is Outcome.AGREE:
        outcome = Outcome.CANNOT_TELL
    alike = [name for name, answer in answers.items() if answer.outcome is outcome]
    if outcome is Outcome.DIVERGED and causes:
        text = first_line(causes[0], several=ranks_are_several)
    elif outcome is Outcome.AGREE:
        text = _agreement(ranks, causes, coverage, measured, reference, several=ranks_are_several)
    elif alike:
        text = f"{alike[0] and f'{alike[0]}: '}{answers[alike[0]].text}"
    else:
        text = f"{failed} of {count} comparisons did not finish; the others agree"
    if alike:
        text += f" ({len(alike)} of {count} comparisons {ENDINGS[outcome]})"
    decisive = answers[alike[0]] if alike else ranks[0]
    counted_values = Tally(both=coverage.recorded, lacking=Counter(coverage.excused))
    named = {cause.op for cause in causes}
    own_steps = decisive.next if not causes or any(one.op in named for one in decisive.causes) else ()
    steps = tuple(dict.fromkeys([*next_steps(outcome, counted_values), *own_steps]))
    told = {name: answer for name, answer in answers.items() if name not in later}
    notes = _notes(told, measured, reference, named if outcome is Outcome.DIVERGED else ())
    missing = _missing(ranks, coverage.excused)
    return Answer(
        outcome, text, tuple(causes), coverage, missing, steps, notes, measured, reference=reference,
        conditions=_conditions(told, several=ranks_are_several),
        unknown_conditions=_unknown_conditions(ranks),
    )  # fmt: skip


def _coverage(ranks: Sequence[Answer]) -> Coverage:
    """Return the sums of all counts."""
    counts: Counter[str] = Counter()
    for answer in ranks:
        counts.update(answer.coverage.excused)
    parts = [answer.coverage for answer in ranks]
    return Coverage(
        sum(part.recorded for part in parts), sum(part.compared for part in parts), dict(counts),
        sum(part.equal for part in parts), sum(part.other_arguments for part in parts),
    )  # fmt: skip


def _agreement(
    ranks: Sequence[Answer], causes: Sequence[Finding], coverage: Coverage, measured: Mapping[str, Any],
    reference: Mapping[str, Any], *, several: bool,
) -> str:  # fmt: skip
    tally = Tally(
        compared=coverage.compared, equal=coverage.equal, lacking=Counter(coverage.excused),
        other_arguments=coverage.other_arguments,
    )  # fmt: skip
    notes = [note for answer in ranks for note in answer.notes]
    return agreement(tally, causes, notes, measured, reference, several=several)


def _notes(
    answers: Mapping[str, Answer],
    measured: Mapping[str, Any],
    reference: Mapping[str, Any],
    named: Collection[str],
) -> tuple[Note, ...]:
    """Return the notes of all ranks, but for those on calls that are named as causes."""
    notes = dict.fromkeys(
        note
        for answer in answers.values()
        for note in answer.notes
        if note.kind not in (NoteKind.BASELINE, NoteKind.REFERENCE) and not (note.op and note.op in named)
    )
    if measured:
        notes[Note(NoteKind.BASELINE, baseline.sentence(measured))] = None
    if reference:
        notes[Note(NoteKind.REFERENCE, third.sentence(reference))] = None
    return tuple(notes)


def _conditions(answers: Mapping[str, Answer], *, several: bool) -> tuple[Condition, ...]:
    """Return the conditions that differ in any comparison, each as the first of them states it.

    A condition that differs on some ranks only names the first of them.
    """
    found: dict[tuple[str, str], list[Condition]] = {}
    for answer in answers.values():
        for one in answer.conditions:
            found.setdefault((one.kind, one.name), []).append(one)
    count = len({name.rpartition("/")[2] for name in answers}) if several else 1
    return tuple(in_order_of_effect(_of_ranks(group, count) for group in found.values()))


def _of_ranks(group: Sequence[Condition], count: int) -> Condition:
    """Return the first of equal conditions; it names its rank if not all of ``count`` ranks state it."""
    first = group[0]
    is_of_all = len({one.rank for one in group}) >= count
    return first if is_of_all else first._replace(text=f"on rank {first.rank}, {first.text}")


def _unknown_conditions(ranks: Sequence[Answer]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(side for rank in ranks for side in rank.unknown_conditions))


def _missing(ranks: Sequence[Answer], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is missing of all ranks: the sentences on their runs, then the counts of all of them."""
    on_runs = dict.fromkeys(text for rank in ranks for text in rank.incomplete)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return (*on_runs, *(f"{counted(count, 'value')} {words_of(code)}" for code, count in ordered))
