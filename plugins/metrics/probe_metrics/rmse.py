"""Root mean square error of two tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, misaligned, sums


class Rmse:
    """Root mean square error over the elements that are finite.

    Formula, in float64, for a target N and a golden B of one shape: ``sqrt(mean(|N - B|²))``; of complex data
    with the modulus of each difference. The result has the unit of the data and is 0 or more.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: left out of sum and count. At other
          places, or everywhere: absent.
        * A golden of zeros is no special case; -0.0 equals 0.0.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the guide of torch_npu.hooks.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the error, or the reason why there is none."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned()]
        if not pair_sums.tally.finite:
            return [mean_over_nothing()]
        return [Measurement(pair_sums.distance / math.sqrt(pair_sums.tally.finite))]
