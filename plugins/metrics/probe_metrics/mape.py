"""Mean absolute percentage error of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, misaligned, sums


class Mape:
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

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the mean, or the reason why there is none."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned()]
        if not pair_sums.tally.finite:
            return [mean_over_nothing()]
        return [Measurement(pair_sums.tally.relative / pair_sums.tally.finite)]
