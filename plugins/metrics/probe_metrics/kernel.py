"""One pass over both tensors for all metrics of the tensor table.

Everything is accumulated in float64 (complex128 for complex data, whose errors are moduli of the
complex difference, decision D14). Where both sides hold the same nan, +inf or -inf at one place
(decision D11), that element counts as equal and as zero; where they do not, ``aligned`` is False
and nothing else of the sums means anything.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe_core.measure import OpenPair
from probe_core.model import Measurement

Array = np.ndarray[Any, Any]

LARGEST = float(np.finfo(np.float64).max)
ONE_THOUSANDTH = 1e-3
FIVE_THOUSANDTHS = 5e-3


@dataclass(slots=True)
class Sums:
    """What one pass finds out. The relative error is |N-B|/|B|: 0 where N == B, inf where only B is 0."""

    size: int = 0
    aligned: bool = True
    target_max: float = 0.0
    golden_max: float = 0.0
    max_absolute: float = 0.0
    max_relative: float = 0.0
    relative_sum: float = 0.0
    below_one: int = 0
    below_five: int = 0
    target_norm: float = 0.0
    golden_norm: float = 0.0
    distance: float = 0.0
    dot_of_units: float = 0.0


def sums(pair: OpenPair) -> Sums:
    """The sums over the whole of both tensors; ask for it with ``pair.once(sums)``.

    ``target_norm``, ``golden_norm`` and ``distance`` are L2 norms of both sides and of their
    difference, ``dot_of_units`` the dot product of both sides divided by their norms (0 where a
    norm is 0). Squares that leave the range of float64 are summed again, of scaled values.
    """
    found = Sums()
    squares = _Squares()
    with np.errstate(all="ignore"):
        for target, golden in pair.blocks():
            if not _align(target, golden):
                found.aligned = False
                return found
            difference = target - golden
            _add(found, np.abs(target), np.abs(golden), np.abs(difference))
            squares.add(target, golden, difference)
        if squares.lost_range(found):
            largest = (found.target_max, found.golden_max, found.max_absolute)
            squares = _Squares(*(min(value, LARGEST) or 1.0 for value in largest))
            for target, golden in pair.blocks():
                _align(target, golden)
                squares.add(target, golden, target - golden)
        squares.finish(found)
    return found


def misaligned() -> Measurement:
    """What every tensor metric answers where nan or inf stand at different places."""
    return Measurement.absent("positions")


def _align(target: Array, golden: Array) -> bool:
    """Zero what is nan or inf on both sides alike, in place; False where they are not alike."""
    finite = np.isfinite(target)
    if finite.all() and np.isfinite(golden).all():
        return True
    special = ~finite
    if not np.array_equal(special, ~np.isfinite(golden)):
        return False
    ours, theirs = target[special], golden[special]
    if target.dtype.kind == "c":
        ours, theirs = ours.view(np.float64), theirs.view(np.float64)
    if not np.array_equal(ours, theirs, equal_nan=True):
        return False
    target[special] = golden[special] = 0
    return True


def _add(found: Sums, target: Array, golden: Array, difference: Array) -> None:
    relative = np.where(difference == 0, 0.0, difference / golden)
    found.size += target.size
    found.target_max = max(found.target_max, float(target.max()))
    found.golden_max = max(found.golden_max, float(golden.max()))
    found.max_absolute = max(found.max_absolute, float(difference.max()))
    found.max_relative = max(found.max_relative, float(relative.max()))
    found.relative_sum += float(relative.sum())
    found.below_one += int(np.count_nonzero(relative < ONE_THOUSANDTH))
    found.below_five += int(np.count_nonzero(relative < FIVE_THOUSANDTHS))


class _Squares:
    """Sums of squares and the dot product, of values divided by a scale of their side."""

    def __init__(self, target: float = 1.0, golden: float = 1.0, difference: float = 1.0) -> None:
        self._scales = (target, golden, difference)
        self._sums = [0.0, 0.0, 0.0]
        self._dot = 0.0

    def add(self, *arrays: Array) -> None:
        scaled = [array if scale == 1.0 else array / scale for array, scale in zip(arrays, self._scales)]
        for position, array in enumerate(scaled):
            self._sums[position] += float(np.vdot(array, array).real)
        self._dot += float(np.vdot(scaled[1], scaled[0]).real)

    def lost_range(self, found: Sums) -> bool:
        """True where a square overflowed or fell to where float64 loses digits."""
        largest = (found.target_max, found.golden_max, found.max_absolute)
        least = float(np.finfo(np.float64).tiny / np.finfo(np.float64).eps)
        return any(value > 0 and not least < square < np.inf for value, square in zip(largest, self._sums))

    def finish(self, found: Sums) -> None:
        roots = [math.sqrt(square) for square in self._sums]
        norms = [root * scale for root, scale in zip(roots, self._scales)]
        found.target_norm, found.golden_norm, found.distance = norms
        if roots[0] and roots[1]:
            found.dot_of_units = self._dot / roots[0] / roots[1]
