"""Root mean square error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import mean_over_nothing, misaligned, sums


class Rmse:
    """sqrt(mean(|N-B|²)) over the elements that are finite.

    nan or inf at the same places are left out, at different places, or everywhere: absent.
    Source: torch_npu.hooks guide, spec/compare 18.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """The error in the unit of the data; 0-d tensors included."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned()]
        if not found.tally.finite:
            return [mean_over_nothing()]
        return [Measurement(found.distance / math.sqrt(found.tally.finite))]
