"""Distances between two tensors, read in blocks (docs/checkpoints.md#figures).

Sums are in float64. A NaN makes the distance and the cosine NaN. An infinity makes the distance infinite, or
NaN if both tensors have it at the same place. Empty tensors have distance 0 and cosine 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from probe_recording.values.arrays import Array

from probe_check.checkpoint.tensors import Tensor

BLOCK_ELEMENTS = 1 << 16
CHUNK_ELEMENTS = 1 << 13
"""Number of elements that are converted to float64 at once.

They stay in the cache of the processor. A library of linear algebra starts no threads for so few, which would
wait for each other on a busy machine.
"""
SAFE_SQUARE_RANGE = 1e300, 1e-280


@dataclass(frozen=True, slots=True)
class Distance:
    """The distance between two tensors of one shape.

    Attributes:
        is_equal: True if all elements are equal; NaN equals NaN, and -0.0 equals 0.0.
        l2: The Euclidean norm of the difference.
        cosine: The cosine of the angle between them; None if the norm of one of them is 0.
        norms: The norms of both tensors.
    """

    is_equal: bool
    l2: float
    cosine: float | None
    norms: tuple[float, float]


class _Sums:
    """The sums of squares and products of two tensors, divided by a common scale."""

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self.first = self.second = self.product = self.difference = 0.0
        self.has_difference = False
        self._room = [np.empty(CHUNK_ELEMENTS) for _ in range(3)]

    def add(self, first: Array, second: Array) -> None:
        """Add the elements of a block."""
        for start in range(0, first.size, CHUNK_ELEMENTS):
            stop = start + CHUNK_ELEMENTS
            self._add_chunk(first[start:stop], second[start:stop])

    def _add_chunk(self, first: Array, second: Array) -> None:
        a, b, d = (room[: first.size] for room in self._room)
        has_same_bits = _has_same_bits(first, second)
        _copy_scaled(first, self.scale, a)
        square = float(a @ a)
        self.first += square
        if has_same_bits and math.isfinite(square):
            self.second += square
            self.product += square
            return
        _copy_scaled(second, self.scale, b)
        self.second += float(b @ b)
        self.product += float(a @ b)
        np.subtract(a, b, out=d)
        difference = float(d @ d)
        self.difference += difference
        if not (self.has_difference or has_same_bits):
            self.has_difference = difference > 0 or not _is_same(first, second)


def _copy_scaled(values: Array, scale: float, target: Array) -> None:
    """Write elements divided by a scale to an array of float64."""
    np.copyto(target, values)
    if scale != 1.0:
        target /= scale


def measure_distance(first: Tensor, second: Tensor) -> Distance:
    """Return the distance between two tensors of one shape.

    Raises:
        UnreadableCheckpoint: A file is damaged.
    """
    with np.errstate(all="ignore"):
        sums = _add_blocks(first, second, _Sums())
        is_wide = {first.element.name, second.element.name} & {"float64", "complex128"}
        if is_wide and not _is_safe(sums):
            scale = _find_scale(first, second)
            if 0 < scale < math.inf:
                sums = _add_blocks(first, second, _Sums(scale))
    first.release()
    second.release()
    return _create_distance(sums)


def _add_blocks(first: Tensor, second: Tensor, sums: _Sums) -> _Sums:
    for start in range(0, first.count, BLOCK_ELEMENTS):
        count = min(BLOCK_ELEMENTS, first.count - start)
        sums.add(_view_as_real(first.read(start, count)), _view_as_real(second.read(start, count)))
    return sums


def _view_as_real(values: Array) -> Array:
    """Return complex elements as pairs of real ones."""
    return values.view(values.real.dtype) if values.dtype.kind == "c" else values


def _has_same_bits(first: Array, second: Array) -> bool:
    """Return True if two arrays of one type are equal bit by bit."""
    if first.dtype != second.dtype or first.dtype.itemsize not in (1, 2, 4, 8):
        return False
    whole = np.dtype(f"u{first.dtype.itemsize}")
    return bool((first.view(whole) == second.view(whole)).all())


def _is_same(first: Array, second: Array) -> bool:
    """Return True if all elements are equal; NaN equals NaN."""
    is_float = first.dtype.kind == "f" and second.dtype.kind == "f"
    return bool(np.array_equal(first, second, equal_nan=is_float))


def _is_safe(sums: _Sums) -> bool:
    """Return True if no square of the sums left the range of float64."""
    high, low = SAFE_SQUARE_RANGE
    squares = (sums.first, sums.second, sums.difference)
    return all(square == 0 or low < square < high for square in squares) and not (
        sums.has_difference and sums.difference == 0
    )


def _find_scale(first: Tensor, second: Tensor) -> float:
    """Return the largest absolute value of all elements; infinity or NaN if one is not finite."""
    largest = 0.0
    for tensor in (first, second):
        for start in range(0, tensor.count, BLOCK_ELEMENTS):
            values = _view_as_real(tensor.read(start, min(BLOCK_ELEMENTS, tensor.count - start)))
            peak = float(np.abs(values).max())
            if not math.isfinite(peak):
                return peak
            largest = max(largest, peak)
    return largest


def _create_distance(sums: _Sums) -> Distance:
    norms = math.sqrt(sums.first), math.sqrt(sums.second)
    l2 = math.sqrt(sums.difference) * sums.scale
    cosine: float | None = None
    if norms[0] and norms[1]:
        cosine = _compute_cosine(sums, norms)
    elif not norms[0] and not norms[1]:
        cosine = 1.0
    return Distance(not sums.has_difference, l2, cosine, (norms[0] * sums.scale, norms[1] * sums.scale))


def _compute_cosine(sums: _Sums, norms: tuple[float, float]) -> float:
    if not sums.has_difference and all(map(math.isfinite, norms)):
        return 1.0
    value = sums.product / norms[0] / norms[1]
    return min(1.0, max(-1.0, value)) if math.isfinite(value) else math.nan
