"""Verdict on a run: which call introduced error, and how many of its records that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from probe_precheck import FORWARD, NOTHING_TO_JUDGE, Measured

from probe_explain.run import Beyond, Explanation, RankResult, badness

LEAST_SHARE = 0.5
"""Share of the records that must be judged before a run is said to be within rounding."""


class Outcome(str, Enum):
    """Kinds of verdicts on a run."""

    INTRODUCED = "ERROR INTRODUCED"
    WITHIN = "WITHIN ROUNDING"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class Cause:
    """Record with a result that rounding does not explain.

    Attributes:
        beyond: The record of an API that is off the most, a forward if any is.
        same: Names of the other records of this API that are off.
    """

    beyond: Beyond
    same: tuple[str, ...] = ()

    @property
    def statement(self) -> str:
        """Clause whose subject is the call."""
        measured = self.beyond.measured
        if measured.apart:
            elements = "1 element is" if measured.apart == 1 else f"{measured.apart:,} elements are"
            return (
                "returns other values than its recorded inputs give "
                f"({measured.name}: {elements} nan or inf, or should be)"
            )
        return (
            f"returns values that are off by {measured.times:.3g} times what rounding explains "
            f"({measured.name}: {measured.error:.2g} of the values computed in higher precision; rounding of "
            f"{measured.dtype.rpartition('.')[2]} explains {measured.rounding:.2g})"
        )


@dataclass(frozen=True, slots=True)
class Missing:
    """Reason why records were not judged.

    Attributes:
        reason: The reason, a clause whose subject is the record.
        count: The number of the records.
        first: The name of the first.
    """

    reason: str
    count: int
    first: str

    @property
    def sentence(self) -> str:
        """Reason with the number of the records and the first of them."""
        records = "1 record" if self.count == 1 else f"{self.count:,} records"
        return f"{records}: {self.reason}; the first is {self.first}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a run.

    Attributes:
        outcome: The kind.
        text: The verdict as a sentence, without the kind.
        causes: The causes, the largest error first.
        recorded: The number of records of calls, forward and backward.
        judged: The number of records that were judged.
        missing: The reasons why the others were not, the most frequent first.
        lost: The number of calls that took their process with them.
        fragile: Sentence on the results that are fragile, not wrong; empty if there are none.
        names_ranks: True if the run has several ranks, so that the rank of each cause is named.
    """

    outcome: Outcome
    text: str
    causes: tuple[Cause, ...]
    recorded: int
    judged: int
    missing: tuple[Missing, ...]
    lost: int = 0
    fragile: str = ""
    names_ranks: bool = False

    @property
    def sentence(self) -> str:
        """The verdict as a sentence that begins with the kind."""
        return f"{self.outcome.value}: {self.text}"


def verdict_on(explanation: Explanation) -> Verdict:
    """Return the verdict on all ranks and steps of a run."""
    results = dict(_records(explanation))
    judged = {name: found for name, found in results.items() if isinstance(found, tuple)}
    missing = _missing(
        {name: found for name, found in results.items() if isinstance(found, str)}, explanation
    )
    recorded = len(results) + sum(rank.unfinished for rank in explanation.ranks)
    causes = _causes(explanation)
    lost = sum(call.lost for rank in explanation.ranks for call in rank.calls)
    outcome, text = _concluded(explanation, judged, causes, recorded, missing)
    return Verdict(
        outcome,
        text,
        causes,
        recorded,
        len(judged),
        missing,
        lost,
        _fragile(judged),
        _has_ranks(explanation),
    )


def _has_ranks(explanation: Explanation) -> bool:
    return len({rank.rank for rank in explanation.ranks}) > 1


def _fragile(judged: dict[str, tuple[Measured, ...]]) -> str:
    """Return a sentence on results that are off by more than their own rounding explains, and are right."""
    found = [(one.error, name, one) for name, results in judged.items() for one in results if one.is_fragile]
    if not found:
        return ""
    error, name, worst = max(found, key=lambda item: item[0])
    count = "1 result moves" if len(found) == 1 else f"{len(found):,} results move"
    return (
        f"fragile, not wrong: {count} with every rounding of the inputs; the most in {name} "
        f"({worst.name}: off by {error:.2g} of the values computed in higher precision)"
    )


def _records(explanation: Explanation) -> Iterator[tuple[str, tuple[Measured, ...] | str]]:
    """Yield all records that were reached by their names, which say step and rank if there are several."""
    for rank in explanation.ranks:
        for call in rank.calls:
            for direction, found in call.directions.items():
                place = _place(rank) if len(explanation.ranks) > 1 else ""
                yield f"{place}{call.name}.{direction}", found


def _place(rank: RankResult) -> str:
    """Return the directories of a rank's step and of the rank, as the beginning of a name."""
    directory = rank.file.parent.name
    return f"{rank.step}/{directory}/" if rank.step else f"{directory}/"


def _missing(reasons: dict[str, str], explanation: Explanation) -> tuple[Missing, ...]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    found = [Missing(reason, len(names), names[0]) for reason, names in by_reason.items()]
    return tuple(sorted(found, key=lambda one: -one.count))


def _causes(explanation: Explanation) -> tuple[Cause, ...]:
    """Return a cause for each API: a forward if any is off, for backwards read what it left behind."""
    by_api: dict[str, list[Beyond]] = {}
    for rank in explanation.ranks:
        for beyond in rank.beyond:
            by_api.setdefault(beyond.op.rpartition(".")[0].rpartition(".")[0], []).append(beyond)
    causes = []
    for found in by_api.values():
        forwards = [beyond for beyond in found if beyond.op.endswith(FORWARD)]
        worst = max(forwards or found, key=lambda beyond: badness(beyond.measured))
        causes.append(Cause(worst, tuple(beyond.op for beyond in found if beyond is not worst)))
    return tuple(sorted(causes, key=lambda cause: badness(cause.beyond.measured), reverse=True))


def _concluded(
    explanation: Explanation,
    judged: dict[str, tuple[Measured, ...]],
    causes: Sequence[Cause],
    recorded: int,
    missing: Sequence[Missing],
) -> tuple[Outcome, str]:
    """Return the kind of the verdict and its sentence, by the first line of docs/explain.md#verdict."""
    some = f"{len(judged):,}" if judged else "none"
    share = f"{some} of {recorded:,} records were computed again"
    if causes:
        worst = causes[0].beyond
        where = f", at {worst.where}" if worst.where else ""
        rank = f"on rank {worst.rank}, " if _has_ranks(explanation) or worst.rank else ""
        return Outcome.INTRODUCED, f"{rank}{worst.op} {causes[0].statement}{where}"
    if explanation.interrupted:
        return Outcome.CANNOT_TELL, f"it was interrupted: {share}, which rounding explains"
    silent = sum(one.count for one in missing if one.reason == NOTHING_TO_JUDGE)
    if len(judged) < LEAST_SHARE * (recorded - silent) or not judged:
        share = f"only {share}" if judged else share
        return Outcome.CANNOT_TELL, f"{share}; {missing[0].sentence}" if missing else share
    values = [
        (measured.times, f"{name}.{measured.name}") for name, found in judged.items() for measured in found
    ]
    times, name = max(values)
    left = recorded - len(judged)
    rest = ("; 1 record was not" if left == 1 else f"; {left:,} records were not") if left else ""
    return Outcome.WITHIN, (
        f"rounding explains all {len(values):,} results of the {len(judged):,} records that were computed "
        f"again{rest} (closest to its limit: {name}, {times:.2g} times what rounding explains)"
    )
