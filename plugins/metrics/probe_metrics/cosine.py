"""Cosine similarity of two tensors."""

from __future__ import annotations

import numpy as np

from probe_core.model import Measurement
from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NO_DIMENSIONS, build_column, compute_group_sums, find_zero_dimensional


class Cosine(GroupMetricBase):
    """Cosine of the angle between target and golden, taken as vectors of all their elements.

    Formula, in float64, for a target N and a golden B of one shape: ``N·B / (‖N‖ ‖B‖)``; complex:
    ``Re(N·conj B) / (‖N‖ ‖B‖)``. The result has no unit and is at least -1 and at most 1.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as 0. At other places:
          absent.
        * All elements are 0 (or -0.0) on both sides: 1. On one side only: absent; the reason names the side.
          A side counts as zero only if every element is exactly 0. Very small numbers do not count as zero.
        * 0-d tensors and tensors of one element have no direction: absent.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the cosines, or the reasons why there are none."""
        sums = group.once(compute_group_sums)
        value = sums.dot_of_units  # of vectors scaled to unit length, so that small numbers do not underflow
        target_zero, golden_zero = sums.target_largest == 0, sums.golden_largest == 0
        return [
            build_column(
                np.clip(value, -1.0, 1.0),
                (~sums.is_aligned, MISALIGNED),
                (find_zero_dimensional(group), NO_DIMENSIONS),
                (sums.tally.size == 1, Measurement.absent("one_element")),
                (target_zero & golden_zero, Measurement(1.0)),
                (target_zero, Measurement.absent("target_zero")),
                (golden_zero, Measurement.absent("golden_zero")),
                (np.isnan(value), Measurement.absent("cosine_nan")),
            )
        ]
