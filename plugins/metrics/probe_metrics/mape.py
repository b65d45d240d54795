"""Mean absolute percentage error of two tensors."""

from __future__ import annotations

import numpy as np

from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, NOTHING_FINITE, build_column, compute_group_sums


class Mape(GroupMetricBase):
    """Mean of the relative errors of all elements that are finite.

    Formula, in float64, for a target N and a golden B of one shape: ``mean(|N - B| / |B|)``; of complex data
    with moduli. The result is a ratio (1 is 100 %) and is 0 or more.

    Edge cases:
        * B is 0 (or -0.0), which the guide leaves open: the element adds 0 if N is 0 too; else the mean is
          inf, as the largest relative error is (docs/tables.md#relative-error).
        * nan or inf, on both sides at the same places with the same sign: left out of sum and count. At other
          places, or everywhere: absent.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the guide of torch_npu.hooks.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the means, or the reasons why there are none."""
        sums = group.once(compute_group_sums)
        count = sums.tally.finite
        mean = sums.tally.relative / np.maximum(count, 1)
        return [build_column(mean, (~sums.is_aligned, MISALIGNED), (count == 0, NOTHING_FINITE))]
