"""Cosine similarity of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class Cosine:
    """Cosine of the angle between target and golden, taken as vectors of all their elements.

    Formula, in float64, for a target N and a golden B of one shape: ``N·B / (‖N‖ ‖B‖)``; complex:
    ``Re(N·conj B) / (‖N‖ ‖B‖)``. The result has no unit and is at least -1 and at most 1.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as 0. At other places:
          absent.
        * All elements are 0 (or -0.0) on both sides: 1. On one side only: absent; the reason names the side.
          A side is zero only if every element is exactly 0, however small they are.
        * 0-d tensors and tensors of one element have no direction: absent.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the cosine, or the reason why there is none."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")]
        if pair_sums.tally.size == 1:
            return [Measurement.absent("one_element")]
        if pair_sums.target_largest == 0 and pair_sums.golden_largest == 0:
            return [Measurement(1.0)]
        if pair_sums.target_largest == 0:
            return [Measurement.absent("target_zero")]
        if pair_sums.golden_largest == 0:
            return [Measurement.absent("golden_zero")]
        value = pair_sums.dot_of_units
        if value != value:
            return [Measurement.absent("cosine_nan")]
        return [Measurement(max(-1.0, min(1.0, value)))]
