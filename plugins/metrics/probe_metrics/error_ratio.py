"""Shares of elements with a small relative error."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class ErrorRatio:
    """Shares of the elements whose relative error is below 1/1000, and below 5/1000.

    Formula: number of elements with ``|N - B| / |B| < limit``, divided by the number of all elements; N is
    the target, B the golden. The relative error is that of ``max_error.MaxError``: 0 where N equals B, inf
    where only B is 0 (docs/tables.md#relative-error). Both shares are from 0 to 1.

    Edge cases:
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          both results are absent.
        * -0.0 equals 0.0.
        * 0-d tensors: absent.
        * Tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the share below 1/1000 and the share below 5/1000, or the reason why there is neither."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned(), misaligned()]
        if pair.target.ndim == 0:
            return [Measurement.absent("zero_dimensional")] * 2
        return [
            Measurement(pair_sums.tally.below_one / pair_sums.tally.size),
            Measurement(pair_sums.tally.below_five / pair_sums.tally.size),
        ]
