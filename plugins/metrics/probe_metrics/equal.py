"""Bitwise equality of two tensors."""

from __future__ import annotations

from collections.abc import Sequence

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair
from probe_metrics.kernel import sums


class Equal:
    """Equality of dtype and of every bit.

    The result is True or False, for tensors of one shape. The byte order in which they are stored does not
    matter.

    Edge cases:
        * A nan equals a nan of the same bits and no other; inf equals inf of the same sign.
        * 0.0 does not equal -0.0.
        * Tensors of two dtypes are not equal, whatever their values.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, a metric of probe's own.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return True if dtype and all bits agree."""
        return [Measurement(pair.once(sums).tally.equal)]
