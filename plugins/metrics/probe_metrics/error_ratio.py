"""Shares of elements with a small relative error."""

from __future__ import annotations

from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NO_DIMENSIONS, build_column, compute_group_sums, find_zero_dimensional


class ErrorRatio(GroupMetricBase):
    """Shares of the elements whose relative error is below 1/1000, and below 5/1000.

    Formula: number of elements with ``|N - B| / |B| < limit``, divided by the number of all elements; N is
    the target, B the golden. The relative error is that of ``max_error.MaxError``: 0 where N equals B, inf
    where only B is 0 (docs/tables.md#relative-error). Both shares are from 0 to 1.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          both results are absent.
        * -0.0 equals 0.0.
        * 0-d tensors: absent.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the shares below 1/1000 and below 5/1000, or the reasons why there are none."""
        sums = group.once(compute_group_sums)
        absent = (~sums.is_aligned, MISALIGNED), (find_zero_dimensional(group), NO_DIMENSIONS)
        tally = sums.tally
        return [build_column(count / tally.size, *absent) for count in (tally.below_one, tally.below_five)]
