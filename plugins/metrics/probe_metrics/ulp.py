"""Distance in units in the last place."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, measure, misaligned, sums
from probe_metrics.tally import Units
from probe_metrics.ulp_units import units_of


class Ulp:
    """How many representable numbers lie between N and B: largest, mean, and share over the limit.

    The distance is exact: that of the two numbers' places among all numbers of the dtype, with
    -0.0 and 0.0 in one place. Where the dtypes differ both sides are rounded to the coarser one.
    nan or inf at the same places are left out; at different places, or everywhere: absent, and so for
    data that are not real floating point. The limits are those of the pre-check's ULP standard
    (float32 32, float16 and bfloat16 1); float64 takes float32's, float8 float16's.
    Source of the distance: B. Dawson, "Comparing floating point numbers" (2012).

    Args:
        limit: A limit of one's own, in ulp; elements over it take a pass over the data of their own.

    Raises:
        ValueError: A limit below 0, or nan.
    """

    def __init__(self, limit: float | None = None) -> None:
        if limit is not None and not limit >= 0:
            raise ValueError(f"limit must be 0 or more, not {limit}")
        self._limit = limit

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Largest and mean distance in ulp, and the share of elements over the limit."""
        units = units_of(pair.target.dtype, pair.golden.dtype)
        if units is None:
            return [Measurement.absent("no_number")] * 3
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned()] * 3
        tally = found.tally
        if self._limit is not None:
            tally = measure(pair, Units(units.dtype, self._limit))
        if not tally.finite:
            return [mean_over_nothing()] * 3
        return [
            Measurement(tally.max_ulp),
            Measurement(tally.ulp / tally.finite),
            Measurement(tally.over_limit / tally.finite),
        ]
