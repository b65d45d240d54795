"""Euclidean distance of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class Euclidean:
    """Euclidean (L2) distance of target and golden.

    Formula, in float64, for a target N and a golden B of one shape: ``sqrt(sum(|N - B|²))``; of complex data
    with the modulus of each difference. The result has the unit of the data and is 0 or more.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          absent.
        * A golden of zeros is no special case; -0.0 equals 0.0.
        * 0-d tensors: absent, as in the tables of msprobe 8.3.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the distance, or the reason why there is none."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")]
        return [Measurement(pair_sums.distance)]
