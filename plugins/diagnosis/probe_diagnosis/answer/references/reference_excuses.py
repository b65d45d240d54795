"""Values that are as near to a more precise run as the golden's (docs/diagnosis.md#reference)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from probe_core.store.names import is_module
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import (
    Basis,
    DifferenceKind,
    ValueComparison,
    ValueState,
)
from probe_diagnosis.timeline.rank_facts import RankFacts, find_op
from probe_diagnosis.timeline.value_table import IS_SCALAR, IS_SOURCE, measure_multiples


@dataclass(frozen=True, slots=True)
class DistancePair:
    """Distances of both sides of a value from the reference.

    Attributes:
        target: The difference of the target and the reference.
        golden: The difference of the golden and the reference.
    """

    target: ValueComparison
    golden: ValueComparison

    @property
    def ratio(self) -> float:
        """The distance of the target as a multiple of that of the golden; inf if only that one is 0."""
        target, golden = self.target.distance, self.golden.distance
        if golden and not (math.isinf(target) and math.isinf(golden)):
            return target / golden
        return 1.0 if target == golden == 0 else math.inf

    def excuses(self, value: ValueComparison) -> bool:
        """Return True if the target is as near to the reference as the golden, or nearly so.

        Args:
            value: The difference of target and golden, whose dtypes state what rounding explains.
        """
        limit, target, golden = limits().reference, self.target, self.golden
        if not math.isfinite(target.distance):
            return False
        if not (value.is_float or golden.is_float):
            return target.distance <= golden.distance
        return target.distance <= limit.factor * golden.distance + value.noise * target.scale


@dataclass(slots=True)
class ReferenceDistances:
    """The comparisons of target and golden with the reference.

    Attributes:
        target: The calls of the target, compared with the reference.
        golden: The calls of the golden, compared with the reference.
        noise: The coarsest rounding of target and golden, as a relative distance.
    """

    target: CallColumns
    golden: CallColumns
    noise: float = 0.0

    def get_distances(self, key: str, golden_key: str) -> dict[str, DistancePair]:
        """Return the distances of the values of a call, by the ends of their row names."""
        sides = [_map_by_suffix(calls, name) for calls, name in ((self.target, key), (self.golden, golden_key))]
        shared = sides[0].keys() & sides[1].keys()
        return {
            suffix: DistancePair(sides[0][suffix], sides[1][suffix])
            for suffix in shared
            if sides[0][suffix].basis == sides[1][suffix].basis
        }

    def has_jump(self, key: str, golden_key: str) -> bool:
        """Return True if the target's distance grows far more in a call than the golden's does."""
        numbers = self.target.numbers_by_key.get(key), self.golden.numbers_by_key.get(golden_key)
        if numbers[0] is None or numbers[1] is None:
            return False
        target, golden = (
            calls.table.lines[calls.starts[number] : calls.starts[number + 1]]
            for calls, number in ((self.target, numbers[0]), (self.golden, numbers[1]))
        )
        (input_growth, output_growth), (golden_input_growth, golden_output_growth) = (
            _measure_growth(lines, self.noise) for lines in (target, golden)
        )
        factor = limits().min_grown_multiple
        return output_growth > factor * max(input_growth, 1.0) and golden_output_growth <= factor * max(
            golden_input_growth, 1.0
        )


def _measure_growth(lines: np.ndarray, noise: float) -> tuple[float, float]:
    """Return the largest difference of the inputs of a call and of its outputs, as multiples of rounding."""
    multiples = measure_multiples(lines, lines["scale"], noise)
    is_source = IS_SOURCE[lines["side"]]
    is_input = is_source & (lines["flags"] & IS_SCALAR == 0)
    return float(multiples[is_input].max(initial=0.0)), float(multiples[~is_source].max(initial=0.0))


def _map_by_suffix(calls: CallColumns, key: str) -> Mapping[str, ValueComparison]:
    """Return the judged values of a call by the ends of their row names."""
    number = calls.numbers_by_key.get(key)
    if number is None:
        return {}
    judged = (Basis.TENSOR, Basis.STATISTICS, Basis.SCALAR)
    return {
        value.row.removeprefix(key): value
        for value in calls[number].values
        if value.state != ValueState.UNJUDGED and value.basis in judged
    }


@dataclass(slots=True)
class ExcuseCounts:
    """Counts of the values that the reference excuses on one rank.

    Attributes:
        values: Number of values that differ and are excused.
        calls_excused: Number of calls with such a value.
        farther: Number of these values that are farther from the reference than the golden's, within the
            limit.
        rest: Number of calls with values that were measured against the reference and are not excused.
        first: The first call with an excused value.
        ratio: The distance of the golden as a multiple of that of the target, in that call.
        jumps: Number of calls in which the target's distance grows and the golden's does not.
        first_jump: The first of these.
    """

    values: int = 0
    calls_excused: int = 0
    farther: int = 0
    rest: int = 0
    first: str = ""
    ratio: float = 0.0
    jumps: int = 0
    first_jump: str = ""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """A call with values that differ, measured against the reference.

    Attributes:
        number: The number of the call.
        is_jump: True if the target's distance grows in it and the golden's does not.
        values: The values of the call, each with its distances; None for one that is not measured.
    """

    number: int
    is_jump: bool
    values: list[tuple[ValueComparison, DistancePair | None]]

    @property
    def has_rest(self) -> bool:
        """True if a value is not excused."""
        return any(
            value_distances is not None and not value_distances.excuses(value) for value, value_distances in self.values
        )

    def judge_values(self, *, is_strict: bool) -> list[ValueComparison]:
        """Return the values with their distances from the reference; those that are excused agree.

        Args:
            is_strict: True to excuse only what is at least as near to the reference as the golden.
        """
        return [
            self._judge_value(value, value_distances, is_strict=is_strict) for value, value_distances in self.values
        ]

    def _judge_value(
        self, value: ValueComparison, value_distances: DistancePair | None, *, is_strict: bool
    ) -> ValueComparison:
        if value_distances is None:
            return value
        value = value._replace(reference_distance_ratio=value_distances.ratio)
        if not value_distances.excuses(value) or (is_strict and value_distances.ratio > 1):
            return value
        distance = value.distance if math.isfinite(value.distance) else 0.0
        return value._replace(state=ValueState.SAME, distance=distance, explained_distance=distance, is_excused=True)


def excuse(facts: RankFacts, distances: ReferenceDistances) -> ExcuseCounts:
    """Mark the values of the target that are as near to the reference as the golden's.

    If values remain that are not, calls in which the target's distance jumps come first: they are not excused
    where the target is farther from the reference than the golden.

    Args:
        facts: The facts about the rank, whose differences are changed.
        distances: The distances of both runs from the reference.
    """
    result, calls = ExcuseCounts(), facts.ops
    wanted = calls.has_any(calls.table.differs & (calls.table.is_tensor | ~calls.table.is_source))
    measured = [*_measure_calls(calls, distances, np.flatnonzero(wanted).tolist())]
    result.rest = sum(call.has_rest for call in measured)
    for call in measured:
        values = call.judge_values(is_strict=call.is_jump and result.rest > 0)
        calls.replace_values(call.number, values)
        pairs = [(value, value_distances) for value, (_, value_distances) in zip(values, call.values)]
        _count_excused(result, calls.keys[call.number], call.is_jump, pairs)
    _excuse_rows(facts, distances)
    return result


def _measure_calls(calls: CallColumns, distances: ReferenceDistances, numbers: list[int]) -> Iterator[MeasuredCall]:
    """Yield the calls with values that differ, and the distances of these values."""
    for number in numbers:
        key = calls.keys[number]
        golden_key = calls.golden_ops.get(number, key)
        call_distances = distances.get_distances(key, golden_key)
        if call_distances:
            pairs = [(value, _find_value_distances(value, key, call_distances)) for value in calls[number].values]
            yield MeasuredCall(number, distances.has_jump(key, golden_key), pairs)


def _find_value_distances(
    value: ValueComparison, key: str, call_distances: Mapping[str, DistancePair]
) -> DistancePair | None:
    """Return the distances of a value that differs; None for one that agrees, arguments and shapes."""
    is_argument = value.is_scalar and value.side.is_source
    if value.state != ValueState.DIFFERS or is_argument or value.kind is not DifferenceKind.VALUE:
        return None
    return call_distances.get(value.row.removeprefix(key))


def _count_excused(
    result: ExcuseCounts, key: str, is_jump: bool, pairs: list[tuple[ValueComparison, DistancePair | None]]
) -> None:
    """Add the excused values of a call to the counts."""
    excused = [
        (value, value_distances) for value, value_distances in pairs if value.is_excused and value_distances is not None
    ]
    if not excused:
        return
    result.values += len(excused)
    result.calls_excused += 1
    result.farther += sum(value_distances.ratio > 1 for _, value_distances in excused)
    returned = [value_distances.ratio for value, value_distances in excused if not value.side.is_source]
    if is_jump and returned:
        result.jumps += 1
        result.first_jump = result.first_jump or key
    if not result.first or (is_module(result.first) and returned and not is_module(key)):
        ratio = max(returned or [value_distances.ratio for _, value_distances in excused])
        result.first, result.ratio = key, 1 / ratio if ratio else math.inf


def _excuse_rows(facts: RankFacts, distances: ReferenceDistances) -> None:
    """Excuse rows that are errors in the table although they agree, if they are near to the reference."""
    excused = []
    for row in facts.tally.failing_at:
        key = find_op(row)
        number = facts.ops.numbers_by_key.get(key)
        golden = facts.ops.golden_ops.get(number, key) if number is not None else key
        value_distances = distances.get_distances(key, golden).get(row.removeprefix(key))
        if value_distances is not None and value_distances.target.state == ValueState.SAME:
            excused.append(row)
    facts.tally.excuse(excused)
