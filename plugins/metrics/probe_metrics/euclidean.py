"""Euclidean distance."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class Euclidean:
    """‖N - B‖ over the flat tensors; complex: of the moduli of the differences.

    nan or inf at the same places count as equal; at different places: absent. 0-d: absent, as the
    seed's table has it. Source: whole-net comparison guide 8.3, spec/compare 5.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """The distance, in the unit of the data."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")]
        return [Measurement(found.distance)]
