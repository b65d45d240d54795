"""Distance of two tensors in units in the last place (ulp)."""

from __future__ import annotations

import numpy as np

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NOTHING_FINITE, build_column, compute_group_sums, measure_tallies
from probe_metrics.tally import Units
from probe_metrics.ulp_units import choose_units


class Ulp(GroupMetricBase):
    """Largest and mean distance in ulp, and the share of elements whose distance is over a limit.

    Formula, for a target N and a golden B of one shape: sort all numbers of the dtype; the distance is the
    number of steps from N to B. It is exact. If the dtypes differ, both sides are rounded to the coarser one.
    The limit is that of the pre-check's ULP standard (docs/standards.md#ulp): 32 for float32 and float64, 1
    for float16, bfloat16 and float8. Largest and mean are in ulp; the share is from 0 to 1.

    Edge cases:
        * -0.0 and 0.0 are one number: their distance is 0. A golden of 0 is not a special case.
        * nan or inf, on both sides at the same places with the same sign: left out. At other places, or
          everywhere: all three results are absent.
        * Integers, booleans and complex data: absent.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: B. Dawson, "Comparing floating point numbers" (2012).

    Args:
        limit: A limit in ulp to use in place of the dtype's. It takes one more pass over the data.

    Raises:
        ValueError: The limit is below 0, or nan.
    """

    def __init__(self, limit: float | None = None) -> None:
        if limit is not None and not limit >= 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        self._limit = limit

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return largest distances, mean distances and shares over the limit, or the reasons for none."""
        sums = group.once(compute_group_sums)
        tally = sums.tally if self._limit is None else measure_tallies(group, self._units)
        count = tally.finite
        absent = (
            (np.array([_units(pair) is None for pair in group], bool), Measurement.absent("no_number")),
            (~sums.is_aligned, MISALIGNED),
            (count == 0, NOTHING_FINITE),
        )
        means = (number / np.maximum(count, 1) for number in (tally.ulp, tally.over_limit))
        return [build_column(numbers, *absent) for numbers in (tally.max_ulp, *means)]

    def _units(self, pair: OpenPair) -> Units | None:
        units = _units(pair)
        return None if units is None or self._limit is None else Units(units.dtype, self._limit)


def _units(pair: OpenPair) -> Units | None:
    return choose_units(pair.target.dtype, pair.golden.dtype)
