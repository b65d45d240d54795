"""Differences of the recorded statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Measurement, Statistic
from probe_core.model.measure import OpenPair


class StatisticsDifference:
    """Difference and relative error of the recorded maximum, minimum, mean and L2 norm.

    Formulas, in float64: ``N - B``, in the unit of the data, and ``|N - B| / |B|``, a ratio; N is a statistic
    of the target, B the same of the golden. No data are read; shapes play no part.

    Edge cases:
        * Either is no number (null, a text, a boolean), as for tensors without elements: both absent
          (``N/A``).
        * The difference is nan, because of nan or of inf - inf: both absent (``Nan``).
        * inf on one side: the difference is inf or -inf; inf over inf is absent (``Nan``).
        * B is 0 (or -0.0): the relative error is absent (``N/A``).
        * An integer beyond float64 counts as inf.

    Source: docs/tables.md#statistics-result, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return four differences (max, min, mean, norm), then four relative errors in the same order."""
        target, golden = pair.slots
        differences: list[Measurement] = []
        relatives: list[Measurement] = []
        for number, reference in zip(target.value.statistics, golden.value.statistics):
            if type(number) is type(reference) is float and reference:  # as nearly all are
                apart = number - reference
                share = abs(apart / reference)
                if share - share == 0:
                    differences.append(Measurement(apart))
                    relatives.append(Measurement(share))
                    continue
            if number is reference is None:
                difference = relative = NO_NUMBER
            else:
                difference, relative = _difference(number, reference)
            differences.append(difference)
            relatives.append(relative)
        return differences + relatives


NO_NUMBER = Measurement.absent("no_number")
NAN = Measurement.absent("nan")
ZERO_GOLDEN = Measurement.absent("zero_golden")


def is_number(value: Statistic) -> bool:
    """Return True for numbers, nan and inf included; booleans are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _difference(target: Statistic, golden: Statistic) -> tuple[Measurement, Measurement]:
    if not is_number(target) or not is_number(golden):
        return NO_NUMBER, NO_NUMBER
    number, reference = as_float(target), as_float(golden)
    difference = number - reference
    if difference != difference:
        return NAN, NAN
    if reference == 0:
        return Measurement(difference), ZERO_GOLDEN
    relative = abs(difference / reference)
    return Measurement(difference), Measurement(relative) if relative == relative else NAN


def as_float(value: Statistic) -> float:
    """Return a recorded number as float64; one beyond the range of float64 is inf or -inf."""
    assert isinstance(value, (int, float))
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
