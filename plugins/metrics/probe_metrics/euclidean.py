"""Euclidean distance of two tensors."""

from __future__ import annotations

from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NO_DIMENSIONS, build_column, compute_group_sums, find_zero_dimensional


class Euclidean(GroupMetricBase):
    """Euclidean (L2) distance of target and golden.

    Formula, in float64, for a target N and a golden B of one shape: ``sqrt(sum(|N - B|²))``; of complex data
    with the modulus of each difference. The result has the unit of the data and is 0 or more.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          absent.
        * A golden of zeros is not a special case; -0.0 equals 0.0.
        * 0-d tensors: absent, as in the tables of msprobe 8.3.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the distances, or the reasons why there are none."""
        sums = group.once(compute_group_sums)
        no_dimensions = find_zero_dimensional(group)
        return [build_column(sums.distance, (~sums.is_aligned, MISALIGNED), (no_dimensions, NO_DIMENSIONS))]
