"""What a collective must deliver, worked out from what all ranks gave (spec/compare 13).

Values that are only moved must arrive bit by bit. Sums may be added in any order and in the precision of the
data: they may be off by ``(n + 1) * eps`` times the sum of the moduli, for n addends (Higham, "Accuracy and
Stability of Numerical Algorithms", section 4.2, first order, and the rounding of the result).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Expected:
    """The flat content of a buffer after a call, and how far from it each element may be."""

    values: Array
    tolerance: Array | float = 0.0


def gather(given: Sequence[Array]) -> Expected:
    """Every rank's values, one behind the other, in the order of the group."""
    return Expected(np.concatenate([array.reshape(-1) for array in given]))


def reduce(given: Sequence[Array], operation: str) -> Expected:
    """All ranks' values taken together, element by element.

    Args:
        given: An array of each rank, alike in shape and dtype.
        operation: ``SUM``, ``AVG``, ``PRODUCT``, ``MAX``, ``MIN``, ``BAND``, ``BOR`` or ``BXOR``.

    Raises:
        ValueError: An operation that is not known.
    """
    flat = [array.reshape(-1) for array in given]
    if operation in _EXACT:
        found = flat[0]
        for array in flat[1:]:
            found = _EXACT[operation](found, array)
        return Expected(found)
    if operation not in ("SUM", "AVG", "PRODUCT"):
        raise ValueError(operation)
    wide = _wide(flat[0].dtype)
    stack = np.stack([array.astype(wide) for array in flat])
    with np.errstate(all="ignore"):
        if operation == "PRODUCT":
            values: Array = stack.prod(axis=0)
            size: Array = np.abs(values)
        else:
            share = len(flat) if operation == "AVG" else 1
            values, size = stack.sum(axis=0) / share, np.abs(stack).sum(axis=0) / share
            if wide == np.int64 and operation == "SUM":
                values = stack.sum(axis=0)
        tolerance = size * (len(flat) + 1) * eps(flat[0].dtype)
    return Expected(values, tolerance)


_EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "MAX": np.maximum,
    "MIN": np.minimum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


def part(expected: Expected, sizes: Sequence[int], number: int) -> Expected:
    """The stretch of a buffer that is rank ``number``'s, where ranks get ``sizes`` elements each."""
    start = sum(sizes[:number])
    stretch = slice(start, start + sizes[number])
    tolerance = expected.tolerance
    return Expected(
        expected.values[stretch], tolerance if isinstance(tolerance, float) else tolerance[stretch]
    )


def breach(found: Array, expected: Expected) -> str:
    """How what was delivered breaks the law, in words; empty where it keeps it."""
    flat = found.reshape(-1)
    if flat.size != expected.values.size:
        return f"{flat.size} values where {expected.values.size} were due"
    if not flat.size:
        return ""
    wide = np.complex128 if "c" in (flat.dtype.kind, expected.values.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        ours, theirs = flat.astype(wide), expected.values.astype(wide)
        apart = np.abs(ours - theirs)
        same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
        allowed = same | (apart <= expected.tolerance) | _overflown(flat.dtype, ours, theirs)
    if allowed.all():
        return ""
    wrong = np.flatnonzero(~allowed)
    sizes = np.where(np.isnan(apart[wrong]), np.inf, apart[wrong])
    worst = wrong[int(np.argmax(sizes))]
    return (
        f"{len(wrong)} of {flat.size} values are wrong; the worst, at {worst}, "
        f"is {flat[worst]!s:.24} where {expected.values[worst]!s:.24} was due"
    )


def _overflown(dtype: np.dtype[Any], ours: Array, theirs: Array) -> Any:
    """Sums that left the range of the data's dtype: inf where the wide sum is finite, or nan behind it."""
    largest = limits(dtype)
    if largest is None:
        return False
    return (np.abs(theirs) >= largest) & ~np.isfinite(ours)


def _wide(dtype: np.dtype[Any]) -> type[Any]:
    if dtype.kind in "iub":
        return np.int64
    return np.complex128 if dtype.kind == "c" else np.float64


@lru_cache(maxsize=64)
def eps(dtype: np.dtype[Any]) -> float:
    """The distance from 1 to the next number of a dtype; 0 for whole numbers."""
    found = _finfo(dtype)
    return float(found.eps) if found is not None else 0.0


@lru_cache(maxsize=64)
def limits(dtype: np.dtype[Any]) -> float | None:
    """The largest number of a floating dtype; None for whole numbers."""
    found = _finfo(dtype)
    return float(found.max) if found is not None else None


def _finfo(dtype: np.dtype[Any]) -> Any:
    if dtype.kind in "iub":
        return None
    if dtype.kind in "fc":
        return np.finfo(dtype)
    import ml_dtypes  # what reads bfloat16 brings it

    finfo: Any = ml_dtypes.finfo
    return finfo(dtype)
