"""Bitwise equality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from probe_core.measure import OpenPair
from probe_core.model import Measurement


class Equal:
    """True where both tensors have one dtype and every bit agrees.

    A nan equals a nan of the same bits, 0.0 does not equal -0.0, and tensors of different dtype
    are not equal. 0-d tensors included; tensors without elements are not measured.
    """

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Whether all bits agree."""
        target, golden = _native(pair.target), _native(pair.golden)
        if target.dtype != golden.dtype:
            return [Measurement(False)]
        size = target.dtype.itemsize
        first, second = np.ravel(target), np.ravel(golden)
        step = max(1, (1 << 20) // size)
        return [
            Measurement(
                all(
                    first[at : at + step].tobytes() == second[at : at + step].tobytes()
                    for at in range(0, first.size, step)
                )
            )
        ]


def _native(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array in this machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
