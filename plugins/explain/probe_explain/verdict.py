"""Verdict on a run: which call introduced error, and how many of its records that rests on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from probe_precheck.model import FORWARD
from probe_precheck.replaying import NOTHING_TO_JUDGE
from probe_precheck.yardstick import ErrorMeasurement

from probe_core.errors import format_count
from probe_explain.run import Explanation, RankResult, UnexplainedResult, get_severity_key

MIN_JUDGED_SHARE = 0.5
"""Share of the records that must be judged before a run is said to be within rounding."""


class ExplainOutcome(str, Enum):
    """Kinds of verdicts on a run."""

    INTRODUCED = "ERROR INTRODUCED"
    WITHIN = "WITHIN ROUNDING"
    CANNOT_TELL = "CANNOT TELL"


@dataclass(frozen=True, slots=True)
class ExplainCause:
    """Record with a result that rounding does not explain.

    Attributes:
        worst_result: The result of an API with the largest error; of a forward call, if rounding does not explain one.
        other_records: Names of the other records of this API with results that rounding does not explain.
    """

    worst_result: UnexplainedResult
    other_records: tuple[str, ...] = ()

    @property
    def statement(self) -> str:
        """Clause whose subject is the call."""
        measured = self.worst_result.measured
        if measured.nonfinite_mismatches:
            elements = (
                "1 element is"
                if measured.nonfinite_mismatches == 1
                else f"{measured.nonfinite_mismatches:,} elements are"
            )
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
class UnjudgedGroup:
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
        return f"{format_count(self.count, 'record')}: {self.reason}; the first is {self.first}"


@dataclass(frozen=True, slots=True)
class ExplainVerdict:
    """Verdict on a run.

    Attributes:
        outcome: The kind.
        text: The verdict as a sentence, without the kind.
        causes: The causes, the largest error first.
        recorded: The number of records of calls, forward and backward.
        judged: The number of records that were judged.
        missing: The reasons why the others were not, the most frequent first.
        lost: The number of calls whose process died.
        fragile: Sentence on the results that are fragile, not wrong; empty if there are none.
        names_ranks: True if the run has several ranks, so that the rank of each cause is named.
    """

    outcome: ExplainOutcome
    text: str
    causes: tuple[ExplainCause, ...]
    recorded: int
    judged: int
    missing: tuple[UnjudgedGroup, ...]
    lost: int = 0
    fragile: str = ""
    names_ranks: bool = False

    @property
    def sentence(self) -> str:
        """The verdict as a sentence that begins with the kind."""
        return f"{self.outcome.value}: {self.text}"

    def is_failing(self, limit: str) -> bool:
        """Return True if the verdict reaches a limit of ``--fail-on``: ``suspect`` or ``incomplete``."""
        if self.outcome is ExplainOutcome.CANNOT_TELL:
            return True
        return bool(self.causes) if limit == "suspect" else self.judged < self.recorded


def conclude_verdict(explanation: Explanation) -> ExplainVerdict:
    """Return the verdict on all ranks and steps of a run."""
    results = dict(_iterate_records(explanation))
    judged = {name: result for name, result in results.items() if isinstance(result, tuple)}
    missing = _group_unjudged(
        {name: result for name, result in results.items() if isinstance(result, str)}, explanation
    )
    recorded = len(results) + sum(rank.unfinished for rank in explanation.ranks)
    causes = _find_causes(explanation)
    lost = sum(call.lost for rank in explanation.ranks for call in rank.calls)
    outcome, text = _decide_outcome(explanation, judged, causes, recorded, missing)
    return ExplainVerdict(
        outcome,
        text,
        causes,
        recorded,
        len(judged),
        missing,
        lost,
        _describe_fragile(judged),
        _has_ranks(explanation),
    )


def _has_ranks(explanation: Explanation) -> bool:
    return len({rank.rank for rank in explanation.ranks}) > 1


def _describe_fragile(judged: dict[str, tuple[ErrorMeasurement, ...]]) -> str:
    """Return a sentence on results that are off by more than their own rounding explains, and are right."""
    fragile_results = [
        (result.error, name, result) for name, results in judged.items() for result in results if result.is_fragile
    ]
    if not fragile_results:
        return ""
    error, name, worst = max(fragile_results, key=lambda item: item[0])
    count = "1 result moves" if len(fragile_results) == 1 else f"{len(fragile_results):,} results move"
    return (
        f"fragile, not wrong: {count} with every rounding of the inputs; the most in {name} "
        f"({worst.name}: off by {error:.2g} of the values computed in higher precision)"
    )


def _iterate_records(explanation: Explanation) -> Iterator[tuple[str, tuple[ErrorMeasurement, ...] | str]]:
    """Yield all records that were reached by their names, which say step and rank if there are several."""
    for rank in explanation.ranks:
        for call in rank.calls:
            for direction, result in call.directions.items():
                place = _get_name_prefix(rank) if len(explanation.ranks) > 1 else ""
                yield f"{place}{call.name}.{direction}", result


def _get_name_prefix(rank: RankResult) -> str:
    """Return the directories of a rank's step and of the rank, as the beginning of a name."""
    directory = rank.file.parent.name
    return f"{rank.step}/{directory}/" if rank.step else f"{directory}/"


def _group_unjudged(reasons: dict[str, str], explanation: Explanation) -> tuple[UnjudgedGroup, ...]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        by_reason.setdefault(reason, []).append(name)
    groups = [UnjudgedGroup(reason, len(names), names[0]) for reason, names in by_reason.items()]
    return tuple(sorted(groups, key=lambda group: -group.count))


def _find_causes(explanation: Explanation) -> tuple[ExplainCause, ...]:
    """Return a cause for each API: the worst forward call, because backward calls read what the forward calls saved."""
    by_api: dict[str, list[UnexplainedResult]] = {}
    for rank in explanation.ranks:
        for result in rank.unexplained_results:
            by_api.setdefault(result.op.rpartition(".")[0].rpartition(".")[0], []).append(result)
    causes = []
    for results in by_api.values():
        forwards = [result for result in results if result.op.endswith(FORWARD)]
        worst = max(forwards or results, key=lambda result: get_severity_key(result.measured))
        causes.append(ExplainCause(worst, tuple(result.op for result in results if result is not worst)))
    return tuple(sorted(causes, key=lambda cause: get_severity_key(cause.worst_result.measured), reverse=True))


def _decide_outcome(
    explanation: Explanation,
    judged: dict[str, tuple[ErrorMeasurement, ...]],
    causes: Sequence[ExplainCause],
    recorded: int,
    missing: Sequence[UnjudgedGroup],
) -> tuple[ExplainOutcome, str]:
    """Return the kind of the verdict and its sentence, by the first line of docs/explain.md#verdict."""
    some = f"{len(judged):,}" if judged else "none"
    share = f"{some} of {recorded:,} records were computed again"
    if causes:
        worst = causes[0].worst_result
        where = f", at {worst.where}" if worst.where else ""
        rank = f"on rank {worst.rank}, " if _has_ranks(explanation) or worst.rank else ""
        return ExplainOutcome.INTRODUCED, f"{rank}{worst.op} {causes[0].statement}{where}"
    if explanation.interrupted:
        return ExplainOutcome.CANNOT_TELL, f"it was interrupted: {share}, which rounding explains"
    silent = sum(group.count for group in missing if group.reason == NOTHING_TO_JUDGE)
    if len(judged) < MIN_JUDGED_SHARE * (recorded - silent) or not judged:
        share = f"only {share}" if judged else share
        reason = min(missing, key=lambda group: group.reason == NOTHING_TO_JUDGE, default=None)
        return ExplainOutcome.CANNOT_TELL, f"{share}; {reason.sentence}" if reason else share
    values = [(measured.times, f"{name}.{measured.name}") for name, results in judged.items() for measured in results]
    times, name = max(values)
    left = recorded - len(judged)
    rest = ("; 1 record was not" if left == 1 else f"; {left:,} records were not") if left else ""
    return ExplainOutcome.WITHIN, (
        f"rounding explains all {len(values):,} results of the {len(judged):,} records that were computed "
        f"again{rest} (closest to its limit: {name}, {times:.2g} times what rounding explains)"
    )
