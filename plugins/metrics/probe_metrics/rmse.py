"""Root mean square error of two tensors."""

from __future__ import annotations

import numpy as np

from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NOTHING_FINITE, build_column, compute_group_sums


class Rmse(GroupMetricBase):
    """Root mean square error over the elements that are finite.

    Formula, in float64, for a target N and a golden B of one shape: ``sqrt(mean(|N - B|²))``; of complex data
    with the modulus of each difference. The result has the unit of the data and is 0 or more.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: left out of sum and count. At other
          places, or everywhere: absent.
        * A golden of zeros is not a special case; -0.0 equals 0.0.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the guide of torch_npu.hooks.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the errors, or the reasons why there are none."""
        sums = group.once(compute_group_sums)
        count = sums.tally.finite
        error = sums.distance / np.sqrt(np.maximum(count, 1))
        return [build_column(error, (~sums.is_aligned, MISALIGNED), (count == 0, NOTHING_FINITE))]
