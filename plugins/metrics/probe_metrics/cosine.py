"""Cosine similarity."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class Cosine:
    """N·B / (‖N‖ ‖B‖) over the flat tensors; complex: Re(N·conj B) / (‖N‖ ‖B‖).

    Both sides all zero: 1. One side all zero: absent, with the side named. nan or inf at the same
    places count as zero; at different places: absent. 0-d and one-element tensors have no
    direction: absent. Source: whole-net comparison guide 8.3, spec/compare 5.3 and D14; a side
    is zero when every element is, however small the others are.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """The cosine, between -1 and 1."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")]
        if found.tally.size == 1:
            return [Measurement.absent("one_element")]
        if found.target_largest == 0 and found.golden_largest == 0:
            return [Measurement(1.0)]
        if found.target_largest == 0:
            return [Measurement.absent("target_zero")]
        if found.golden_largest == 0:
            return [Measurement.absent("golden_zero")]
        value = found.dot_of_units
        if value != value:
            return [Measurement.absent("cosine_nan")]
        return [Measurement(max(-1.0, min(1.0, value)))]
