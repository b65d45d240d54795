"""The verdict on one rank, and on all ranks together (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import PureWindowsPath  # which knows both separators
from typing import Any

from probe_core.errors import counted
from probe_core.model.answers import Answer, Coverage, Finding, Note, NoteKind, Outcome
from probe_diagnosis.answer import baseline, ladder
from probe_diagnosis.difference.reasons import PHASES
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.coverage import (
    GOLDEN_ONLY,
    HARMLESS,
    NAMED,
    TARGET_ONLY,
    Tally,
    words_of,
)

GRAVITY = (Outcome.AGREE, Outcome.CANNOT_TELL, Outcome.NOT_COMPARABLE, Outcome.DIVERGED)
"""Outcomes of ranks: that of all ranks is the last of them that occurs."""

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
        advice: What else to do next.
        several: True if the runs have several ranks, so that the sentence names this one.
    """
    incomplete = (*unfinished, *((INTERRUPTED,) if interrupted else ()))
    coverage = tally.coverage()
    outcome = _outcome(causes, tally, doubt=doubt, interrupted=interrupted)
    if outcome is Outcome.DIVERGED:
        text = f"{_first(causes[0], several=several)}{_share(tally)}"
    elif outcome is Outcome.AGREE:
        text = _agreement(tally, differently, notes, measured, several=several)
    elif outcome is Outcome.NOT_COMPARABLE:
        text = _not_comparable(tally)
    else:
        text = _undecided(causes, tally, doubt=doubt, interrupted=interrupted, several=several)
    if measured:
        notes = (*notes, Note(NoteKind.BASELINE, baseline.sentence(measured)))
    return Answer(
        outcome,
        text,
        (*causes, *differently),
        coverage,
        (*incomplete, *tally.sentences()),
        (*_next(outcome, tally), *advice),
        tuple(notes),
        measured or {},
        incomplete,
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


def _first(cause: Finding, *, several: bool) -> str:
    """Return the sentence on the first cause in brief, without its end; the cause itself holds the rest."""
    line = _LINE.match(cause.where)
    place = cause.where if line is None else f"{PureWindowsPath(line[1]).name}, {line[2]}"
    where = f", at {place}" if place else ""
    rank = f"on rank {cause.rank}, " if several or cause.rank else ""
    step = f"in {cause.step}, " if cause.step else ""
    subject = PHASES if cause.reason.code == ladder.KIND else f"{cause.op} "
    return f"{step}{rank}{subject}{cause.brief or cause.reason.detail}{where}"


def _share(tally: Tally) -> str:
    """Return an addition to a verdict that rests on a part of the target."""
    if tally.share >= limits().enough:
        return ""
    return f"; only {tally.share:.0%} of the target's floating-point tensors could be compared"


def _agreement(
    tally: Tally,
    differently: Sequence[Finding],
    notes: Sequence[Note],
    measured: Mapping[str, Any] | None = None,
    *,
    several: bool,
) -> str:
    count = tally.compared - tally.other_arguments
    other = " other" if tally.other_arguments else ""
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
        return f"{_first(causes[0], several=several)}; {doubt}"
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


def _next(outcome: Outcome, tally: Tally) -> tuple[str, ...]:
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


def over_all(
    answers: Mapping[str, Answer], causes: Sequence[Finding], failed: int, *, ranks_are_several: bool = False,
    later: Collection[str] = (),
) -> Answer:  # fmt: skip
    """Return the verdict on all ranks.

    Args:
        answers: The verdict on each rank that was compared, by the names of step and rank.
        causes: The causes over all ranks, in the order of cause and effect.
        failed: Number of ranks that could not be compared.
        ranks_are_several: True if they are of several ranks, not only of several steps.
        later: The names of comparisons of steps after the first one that diverged. They add no notes, because
            what differs in them may follow from that step.
    """
    counts: dict[str, int] = {}
    ranks = list(answers.values())
    for answer in ranks:
        for code, count in answer.coverage.excused.items():
            counts[code] = counts.get(code, 0) + count
    coverage = Coverage(
        sum(answer.coverage.recorded for answer in ranks),
        sum(answer.coverage.compared for answer in ranks),
        counts,
        sum(answer.coverage.equal for answer in ranks),
        sum(answer.coverage.other_arguments for answer in ranks),
    )
    measured = baseline.together([answer.baseline for answer in ranks if answer.baseline])
    outcome = max((answer.outcome for answer in ranks), key=GRAVITY.index)
    if failed and outcome is Outcome.AGREE:
        outcome = Outcome.CANNOT_TELL
    several = len(answers) + failed > 1
    if not several:
        text = ranks[0].text
    elif outcome is Outcome.DIVERGED and causes:
        text = _first(causes[0], several=ranks_are_several)
    elif outcome is Outcome.AGREE:
        told = [note for answer in ranks for note in answer.notes]
        tally = Tally(
            compared=coverage.compared, equal=coverage.equal, lacking=Counter(counts),
            other_arguments=coverage.other_arguments,
        )  # fmt: skip
        text = _agreement(tally, causes, told, measured, several=ranks_are_several)
    else:
        first = next((name for name, answer in answers.items() if answer.outcome is outcome), None)
        if first is None:
            text = f"{failed} of {len(answers) + failed} comparisons did not finish; the others agree"
        else:
            text = f"{first and f'{first}: '}{answers[first].text}"
    if several:
        like = sum(answer.outcome is outcome for answer in ranks)
        if like:
            text += f" ({like} of {len(answers) + failed} comparisons {_ending(outcome)})"
    missing = ranks[0].missing if not several else _missing(ranks, counts)
    decisive = next((answer for answer in ranks if answer.outcome is outcome), ranks[0])
    whole = Tally(both=coverage.recorded, lacking=Counter(counts))
    found = causes if several else ranks[0].causes
    named = {cause.op for cause in found}
    is_of_decisive = not found or any(cause.op in named for cause in decisive.causes)
    steps = tuple(dict.fromkeys([*_next(outcome, whole), *(decisive.next if is_of_decisive else ())]))
    notes = dict.fromkeys(
        note
        for name, answer in answers.items()
        if name not in later
        for note in answer.notes
        if note.kind is not NoteKind.BASELINE and not (outcome is Outcome.DIVERGED and note.op in named)
    )
    if measured:
        notes[Note(NoteKind.BASELINE, baseline.sentence(measured))] = None
    return Answer(outcome, text, tuple(found), coverage, missing, steps, tuple(notes), measured)


def _missing(ranks: Sequence[Answer], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is missing of all ranks: the sentences on their runs, then the counts of all of them."""
    on_runs = dict.fromkeys(text for rank in ranks for text in rank.incomplete)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return (*on_runs, *(f"{counted(count, 'value')} {words_of(code)}" for code, count in ordered))


def _ending(outcome: Outcome) -> str:
    return {
        Outcome.AGREE: "agree",
        Outcome.DIVERGED: "diverged",
        Outcome.NOT_COMPARABLE: "cannot be compared",
        Outcome.CANNOT_TELL: "cannot be decided",
    }[outcome]
