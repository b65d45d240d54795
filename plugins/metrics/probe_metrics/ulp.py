"""Distance of two tensors in units in the last place (ulp)."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, measure, misaligned, sums
from probe_metrics.tally import Units
from probe_metrics.ulp_units import units_of


class Ulp:
    """Largest and mean distance in ulp, and the share of elements whose distance is over a limit.

    Formula, for a target N and a golden B of one shape: sort all numbers of the dtype; the distance is the
    number of steps from N to B. It is exact. If the dtypes differ, both sides are rounded to the coarser one.
    The limit is that of the pre-check's ULP standard (docs/standards.md#ulp): 32 for float32 and float64, 1
    for float16, bfloat16 and float8. Largest and mean are in ulp; the share is from 0 to 1.

    Edge cases:
        * -0.0 and 0.0 are one number: their distance is 0. A golden of 0 is no special case.
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

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return largest distance, mean distance and share over the limit, or the reason for none."""
        units = units_of(pair.target.dtype, pair.golden.dtype)
        if units is None:
            return [Measurement.absent("no_number")] * 3
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned()] * 3
        tally = pair_sums.tally
        if self._limit is not None:
            tally = measure(pair, Units(units.dtype, self._limit))
        if not tally.finite:
            return [mean_over_nothing()] * 3
        return [
            Measurement(tally.max_ulp),
            Measurement(tally.ulp / tally.finite),
            Measurement(tally.over_limit / tally.finite),
        ]
