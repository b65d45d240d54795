"""Largest absolute and largest relative error of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import misaligned, sums


class MaxError:
    """Largest absolute error and largest relative error over all elements.

    Formulas, in float64, for a target N and a golden B of one shape: ``max(|N - B|)``, in the unit of the
    data, and ``max(|N - B| / |B|)``, a ratio without epsilon (docs/tables.md#relative-error); of complex data
    with moduli.

    Edge cases:
        * N equals B, both 0 (or -0.0) included: the relative error of the element is 0.
        * Only B is 0: the relative error of the element, and so the largest, is the number inf.
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          both results are absent.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the largest absolute and the largest relative error, or the reason why there is neither."""
        pair_sums = pair.once(sums)
        if not pair_sums.aligned:
            return [misaligned(), misaligned()]
        return [Measurement(pair_sums.tally.max_absolute), Measurement(pair_sums.tally.max_relative)]
