"""Mean absolute percentage error."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, misaligned, sums


class Mape:
    """mean(|N-B| / |B|) over the elements that are finite, as a ratio, not multiplied by 100.

    The guide leaves B = 0 open: here an element adds 0 where N is 0 too, and makes the mean inf
    where it is not, as decision D4 has it for the largest relative error. nan or inf at the same
    places are left out; at different places, or everywhere: absent. Source: torch_npu.hooks guide,
    spec/compare 18.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """The mean relative error; 0-d tensors included."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned()]
        if not found.tally.finite:
            return [mean_over_nothing()]
        return [Measurement(found.tally.relative / found.tally.finite)]
