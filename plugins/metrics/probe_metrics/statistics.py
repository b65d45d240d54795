"""Differences of recorded statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.measure import OpenPair
from probe_core.model import Measurement, Statistic


class StatisticsDifference:
    """N - B and |N - B| / |B| of the recorded maximum, minimum, mean and L2 norm.

    Absent (N/A) where either is no number: null, text, a truth value. A difference that is nan is
    absent (Nan), with its relative error (decision D8); inf stays. B = 0: no relative error.
    Tensors that were recorded without elements have no statistics: absent.
    Source: whole-net comparison guide 8.3, spec/compare 6.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Four differences in the unit of the data, then four relative errors as ratios."""
        target, golden = pair.slots
        both = zip(target.value.statistics.four(), golden.value.statistics.four())
        measured = [_difference(ours, theirs) for ours, theirs in both]
        return [*(difference for difference, _ in measured), *(relative for _, relative in measured)]


def is_number(value: Statistic) -> bool:
    """True for what can be subtracted: numbers, nan and inf among them, but no truth values."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _difference(target: Statistic, golden: Statistic) -> tuple[Measurement, Measurement]:
    if not is_number(target) or not is_number(golden):
        return (Measurement.absent("no_number"),) * 2
    ours, theirs = as_float(target), as_float(golden)
    difference = ours - theirs
    if math.isnan(difference):
        return (Measurement.absent("nan"),) * 2
    if theirs == 0:
        return Measurement(difference), Measurement.absent("zero_golden")
    relative = abs(difference / theirs)
    if math.isnan(relative):
        return Measurement(difference), Measurement.absent("nan")
    return Measurement(difference), Measurement(relative)


def as_float(value: Statistic) -> float:
    """A recorded number as float64; one beyond its range is inf."""
    assert isinstance(value, (int, float))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
