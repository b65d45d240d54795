"""Bitwise equality."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import sums


class Equal:
    """True where both tensors have one dtype and every bit agrees.

    A nan equals a nan of the same bits, 0.0 does not equal -0.0, and tensors of different dtype
    are not equal; the byte order in which they were stored does not matter. 0-d tensors included;
    tensors without elements are not measured.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Whether all bits agree."""
        return [Measurement(pair.once(sums).tally.equal)]
