"""Two tensors compared value by value, as the command ``cn`` of the old tool did."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from probe_legacy.parse.tensors import Array

BLOCK = 1 << 20
"""Number of values that are compared at a time."""
Line = tuple[int, object, object, object]
"""A line of a table: the number of the value, both values, the absolute difference."""


@dataclass
class ElementComparison:
    """The result of comparing two tensors.

    Attributes:
        total: The number of values.
        all_close: True if no value is wrong.
        cosine: The cosine similarity, as float32; NaN if a tensor is zero.
        error_ratio: The share of wrong values.
        wrong: The first wrong values.
        first: The first values.
    """

    total: int = 0
    all_close: bool = True
    cosine: object = np.float32("nan")
    error_ratio: float = 0.0
    wrong: list[Line] = field(default_factory=list)
    first: list[Line] = field(default_factory=list)


def compare(left: Array, right: Array, absolute: float, relative: float, count: int) -> ElementComparison:
    """Return the differences of two tensors, whose values are taken as float32 (complex ones as complex64).

    Args:
        left: The tensor to judge.
        right: The golden.
        absolute: The absolute error that is accepted.
        relative: The error relative to the golden that is accepted.
        count: The number of values in a table.
    """
    result = ElementComparison(total=max(left.size, right.size))
    dtype = np.complex64 if "c" in (left.dtype.kind, right.dtype.kind) else np.float32
    flat = left.reshape(-1), right.reshape(-1)
    wrong, dot = 0, 0.0
    squares = [0.0, 0.0]
    with np.errstate(all="ignore"):
        for begin in range(0, result.total, BLOCK):
            left_block, right_block = (
                _read_block(array, begin, min(BLOCK, result.total - begin), dtype) for array in flat
            )
            difference = np.abs(left_block - right_block)
            places = _find_wrong(left_block, right_block, difference, absolute + relative * np.abs(right_block))
            wrong += len(places)
            for place in places[: count - len(result.wrong)]:
                result.wrong.append((begin + int(place), left_block[place], right_block[place], difference[place]))
            if not begin:
                result.first = [
                    (n, left_block[n], right_block[n], difference[n]) for n in range(min(count, len(left_block)))
                ]
            wide = np.complex128 if dtype is np.complex64 else np.float64
            left_block, right_block = left_block.astype(wide), right_block.astype(wide)
            dot += float(np.vdot(right_block, left_block).real)
            squares = [
                squares[0] + float(np.vdot(left_block, left_block).real),
                squares[1] + float(np.vdot(right_block, right_block).real),
            ]
        if result.total:
            result.cosine = np.float32(np.float64(dot) / np.sqrt(np.float64(squares[0])) / np.sqrt(squares[1]))
            result.error_ratio = wrong / result.total
    result.all_close = not wrong
    return result


def _find_wrong(left: Array, right: Array, difference: Array, tolerance: Array) -> Array:
    """Return the places at which two blocks differ by more than the tolerance; infinities must be equal."""
    is_close = np.isfinite(right) & (difference <= tolerance)
    (places,) = np.nonzero(~(is_close | (left == right)))
    return places


def _read_block(array: Array, begin: int, count: int, dtype: type) -> Array:
    """Return ``count`` values from ``begin`` on, those behind the end as zeros."""
    block: Array = np.zeros(count, dtype)
    part = array[begin : begin + count]
    block[: len(part)] = part
    return block


def format_comparison(compared: ElementComparison) -> Iterator[str]:
    """Yield the lines of both tables."""
    for title, rows in (("Error Item Table", compared.wrong), ("Top Item Table", compared.first)):
        cells = [("Index", "Left", "Right", "Diff"), *(tuple(map(str, row)) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*cells)]
        yield title
        for row in cells:
            yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip()
        yield ""
