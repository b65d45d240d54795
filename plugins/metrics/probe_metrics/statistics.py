"""Differences of recorded statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Measurement, Statistic
from probe_core.model.measure import OpenPair


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
        differences: list[Measurement] = []
        relatives: list[Measurement] = []
        for ours, theirs in zip(target.value.statistics, golden.value.statistics):
            difference, relative = _difference(ours, theirs)
            differences.append(difference)
            relatives.append(relative)
        return differences + relatives


NO_NUMBER = Measurement.absent("no_number")
NAN = Measurement.absent("nan")
ZERO_GOLDEN = Measurement.absent("zero_golden")


def is_number(value: Statistic) -> bool:
    """True for what can be subtracted: numbers, nan and inf among them, but no truth values."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _difference(target: Statistic, golden: Statistic) -> tuple[Measurement, Measurement]:
    if type(target) is float and type(golden) is float:  # as nearly all are
        ours, theirs = target, golden
    elif not is_number(target) or not is_number(golden):
        return NO_NUMBER, NO_NUMBER
    else:
        ours, theirs = as_float(target), as_float(golden)
    difference = ours - theirs
    if difference != difference:
        return NAN, NAN
    if theirs == 0:
        return Measurement(difference), ZERO_GOLDEN
    relative = abs(difference / theirs)
    return Measurement(difference), Measurement(relative) if relative == relative else NAN


def as_float(value: Statistic) -> float:
    """A recorded number as float64; one beyond its range is inf."""
    assert isinstance(value, (int, float))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
