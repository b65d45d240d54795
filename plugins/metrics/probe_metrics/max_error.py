"""Largest absolute and largest relative error."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class MaxError:
    """max|N-B| and max(|N-B|/|B|), both in float64 without epsilon (decision D4).

    The relative error is 0 where N == B, 0/0 too, and inf where only B is 0: then the largest is
    the number inf. nan or inf at the same places count as equal; at different places: absent.
    Source: whole-net comparison guide 8.3, spec/compare 5.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """The largest absolute error in the unit of the data, and the largest relative error as a ratio."""
        found = pair.once(sums)
        if not found.aligned:
            return [misaligned(), misaligned()]
        return [Measurement(found.tally.max_absolute), Measurement(found.tally.max_relative)]
