"""Shares of elements with a small relative error."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class ErrorRatio:
    """Share of elements whose relative error is below 1/1000, and below 5/1000 (strictly).

    The relative error is that of ``max_error``. 0-d: absent. nan or inf at the same places count
    as equal elements, as the guide has it; at different places: absent. Source: whole-net comparison
    guide 8.3, spec/compare 5.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Both shares, from 0 to 1."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned(), misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")] * 2
        return [
            Measurement(found.tally.below_one / found.tally.size),
            Measurement(found.tally.below_five / found.tally.size),
        ]
