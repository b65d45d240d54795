"""The verdict on one rank, and on all ranks together (docs/diagnosis.md#verdicts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from probe_core.model.answers import Answer, Coverage, Finding, Outcome
from probe_diagnosis.answer.coverage import (
    GOLDEN_ONLY,
    HARMLESS,
    NAMED,
    TARGET_ONLY,
    Tally,
    words_of,
)

COMPARABLE = 0.1
"""Least share of the target's floating-point tensors that must have been compared for a verdict."""

ENOUGH = 0.5
"""Least share of either run's floating-point tensors that must have been compared to say that they agree."""

GRAVITY = (Outcome.AGREE, Outcome.CANNOT_TELL, Outcome.NOT_COMPARABLE, Outcome.DIVERGED)
"""Outcomes of ranks: that of all ranks is the last of them that occurs."""

GONE = ", but what the calls behind it return agrees"
"""End of a note on a difference that had no effect."""

INTERRUPTED = "the comparison was interrupted; later calls were not compared"
"""Sentence on a comparison that was stopped before its end."""


def answer_of(
    causes: Sequence[Finding],
    differently: Sequence[Finding],
    tally: Tally,
    *,
    notes: Sequence[str] = (),
    doubt: str = "",
    interrupted: bool = False,
    unfinished: Sequence[str] = (),
) -> Answer:
    """Return the verdict on one rank.

    Args:
        causes: The causes of differences, the first to look at before all others.
        differently: Calls that were made differently, but whose values agree.
        tally: The counts of values that were compared.
        notes: Sentences on calls that differ without an effect on what follows them.
        doubt: The reason why the causes do not show that the runs diverged; empty if they do.
        interrupted: True if rows are missing because the comparison was interrupted.
        unfinished: Sentences on runs whose record is incomplete.
    """
    missing = (*unfinished, *((INTERRUPTED,) if interrupted else ()), *tally.sentences())
    coverage = tally.coverage()
    outcome = _outcome(causes, tally, doubt=doubt, interrupted=interrupted)
    if outcome is Outcome.DIVERGED:
        text = f"{_first(causes[0])}{_share(tally)}"
    elif outcome is Outcome.AGREE:
        text = _agreement(tally, differently, notes)
    elif outcome is Outcome.NOT_COMPARABLE:
        text = _not_comparable(tally)
    else:
        text = _undecided(causes, tally, doubt=doubt, interrupted=interrupted)
    found = (*causes, *differently)
    return Answer(
        outcome, f"{outcome.value}: {text}", found, coverage, missing, _next(outcome, tally), tuple(notes)
    )


def _outcome(causes: Sequence[Finding], tally: Tally, *, doubt: str, interrupted: bool) -> Outcome:
    if tally.share < COMPARABLE:
        return Outcome.NOT_COMPARABLE
    if causes:
        return Outcome.CANNOT_TELL if doubt else Outcome.DIVERGED
    if interrupted or tally.failing or tally.unexcused or tally.least_share < ENOUGH:
        return Outcome.CANNOT_TELL
    return Outcome.AGREE


def _first(cause: Finding) -> str:
    """Return the sentence on the first cause, without its end."""
    where = f", at {cause.where}" if cause.where else ""
    rank = f"on rank {cause.rank}, " if cause.rank else ""
    step = f"in {cause.step}, " if cause.step else ""
    return f"{step}{rank}{cause.op} {cause.reason.detail}{where}"


def _share(tally: Tally) -> str:
    """Return an addition to a verdict that rests on a part of the target."""
    if tally.share >= ENOUGH:
        return ""
    return f"; only {tally.share:.0%} of the target's floating-point tensors could be compared"


def _agreement(tally: Tally, differently: Sequence[Finding], notes: Sequence[str]) -> str:
    parts = [f"within rounding in all {tally.compared:,} values that both runs recorded"]
    gone = [note for note in notes if note.endswith(GONE)]
    if gone:
        parts = [
            f"within rounding in the {tally.compared:,} values that both runs recorded, but for differences "
            f"without an effect on what follows, in {gone[0].partition(' ')[0]} first"
        ]
    parts += [
        f"besides, {tally.lacking[code]:,} value{'s' * (tally.lacking[code] != 1)} {words_of(code)}"
        for code in sorted(HARMLESS | NAMED)
        if tally.lacking[code]
    ]
    alone = tally.lacking[TARGET_ONLY] + tally.lacking[GOLDEN_ONLY]
    if alone:
        parts.append(f"{alone:,} more were recorded in one run only")
    if differently:
        count = len(differently)
        calls = "1 call was" if count == 1 else f"{count} calls were"
        parts.append(f"{calls} made differently, {differently[0].op} first")
    return "; ".join(parts)


def _not_comparable(tally: Tally) -> str:
    if tally.floats[0]:
        counted = f"{tally.floats_compared[0]:,} of the target's {tally.floats[0]:,} floating-point tensors"
    else:
        counted = f"{tally.compared:,} of the target's {tally.both + tally.lacking[TARGET_ONLY]:,} values"
    return f"only {counted} could be compared{_most(tally)}"


def _undecided(causes: Sequence[Finding], tally: Tally, *, doubt: str, interrupted: bool) -> str:
    if interrupted:
        return "the comparison was interrupted, and nothing that was compared until then differs"
    if causes and doubt:
        return f"{_first(causes[0])}; {doubt}"
    if tally.failing:
        return (
            f"{tally.failing:,} rows fail by the rule of the table, {tally.failing_first} first, although no "
            "value differs by more than rounding explains"
        )
    if tally.unexcused:
        return f"nothing that was compared differs, but {tally.unexcused:,} values were not{_most(tally)}"
    whose = "target" if tally.share == tally.least_share else "golden"
    return (
        f"nothing that was compared differs, but only {tally.least_share:.0%} of the {whose}'s "
        f"floating-point tensors were{_most(tally)}"
    )


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
            steps.append("Record both runs with the same level and scope, and compare again.")
        if codes["unreadable"] + codes["no_target_file"] + codes["no_golden_file"]:
            steps.append("Copy or record the missing tensor files again, and compare again.")
        if codes["not_recorded"]:
            steps.append("Record both runs with task tensor or statistics, and compare again.")
    return tuple(steps)


def over_all(answers: Mapping[str, Answer], causes: Sequence[Finding], failed: int) -> Answer:
    """Return the verdict on all ranks.

    Args:
        answers: The verdict on each rank that was compared, by the names of step and rank.
        causes: The causes over all ranks, in the order of cause and effect.
        failed: Number of ranks that could not be compared.
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
    )
    outcome = max((answer.outcome for answer in ranks), key=GRAVITY.index)
    if failed and outcome is Outcome.AGREE:
        outcome = Outcome.CANNOT_TELL
    several = len(answers) + failed > 1
    if not several:
        text = ranks[0].sentence.partition(": ")[2]
    elif outcome is Outcome.DIVERGED and causes:
        text = _first(causes[0])
    elif outcome is Outcome.AGREE:
        said = [note for answer in ranks for note in answer.notes]
        text = _agreement(Tally(compared=coverage.compared, lacking=Counter(counts)), causes, said)
    else:
        first = next((name for name, answer in answers.items() if answer.outcome is outcome), None)
        if first is None:
            text = f"{failed} of {len(answers) + failed} comparisons did not finish; the others agree"
        else:
            text = f"{first and f'{first}: '}{answers[first].sentence.partition(': ')[2]}"
    if several:
        like = sum(answer.outcome is outcome for answer in ranks)
        if like:
            text += f" ({like} of {len(answers) + failed} comparisons {_ending(outcome)})"
    missing = ranks[0].missing if not several else _missing(ranks, counts)
    steps = tuple(dict.fromkeys(text for answer in ranks for text in answer.next))
    found = causes if several else ranks[0].causes
    notes = tuple(dict.fromkeys(text for answer in ranks for text in answer.notes))
    return Answer(outcome, f"{outcome.value}: {text}", tuple(found), coverage, missing, steps, notes)


def _missing(ranks: Sequence[Answer], counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return what is missing of all ranks: the sentences on their runs, then the counts of all of them."""
    on_runs = dict.fromkeys(text for rank in ranks for text in rank.missing if not text[0].isdigit())
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return (*on_runs, *(f"{count:,} value{'s' * (count != 1)} {words_of(code)}" for code, count in ordered))


def _ending(outcome: Outcome) -> str:
    return {
        Outcome.AGREE: "agree",
        Outcome.DIVERGED: "diverged",
        Outcome.NOT_COMPARABLE: "cannot be compared",
        Outcome.CANNOT_TELL: "cannot be decided",
    }[outcome]
