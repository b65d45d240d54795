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
    """The flat content of a buffer after a call.

    Attributes:
        values: What is due, element by element.
        tolerance: How far from it each element may be; None where it must arrive bit by bit.
        reach: The largest modulus that adding up may have come by; inf may stand where the dtype ends before.
        other: What may stand as well where nan is due: some devices drop a nan in MAX and MIN.
    """

    values: Array
    tolerance: Array | float | None = None
    reach: Array | float = 0.0
    other: Array | None = None


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
        found = other = flat[0]
        for array in flat[1:]:
            found = _EXACT[operation](found, array)
            other = _WITHOUT_NAN.get(operation, _EXACT[operation])(other, array)
        return Expected(found, 0.0, 0.0, other)
    if operation not in ("SUM", "AVG", "PRODUCT"):
        raise ValueError(operation)
    if flat[0].dtype.kind in "iub":
        return Expected(_whole(np.stack(flat), operation))
    wide = _wide(flat[0].dtype)
    stack = np.stack([array.astype(wide) for array in flat])
    with np.errstate(all="ignore"):
        if operation == "PRODUCT":
            values: Array = stack.prod(axis=0)
            size: Array = np.abs(values)
            reach = np.maximum(np.abs(stack), 1).prod(axis=0)
            small = reach
        else:
            share = len(flat) if operation == "AVG" else 1
            values, size = stack.sum(axis=0) / share, np.abs(stack).sum(axis=0) / share
            reach, small = np.abs(stack).sum(axis=0), 1.0
        tolerance = size * (len(flat) + 1) * eps(flat[0].dtype) + len(flat) * small * tiny(flat[0].dtype)
        finite = np.isfinite(stack).all(axis=0)
    return Expected(values, np.where(finite, tolerance, 0.0), np.where(finite, reach, 0.0))


def _whole(stack: Array, operation: str) -> Array:
    """Sums and products of whole numbers, which wrap around as they do on every device."""
    if stack.dtype.kind == "b":
        found: Array = np.asarray(stack.all(axis=0) if operation == "PRODUCT" else stack.any(axis=0))
    elif operation == "PRODUCT":
        found = stack.prod(axis=0, dtype=stack.dtype)
    elif operation == "AVG":
        found = np.trunc(stack.sum(axis=0) / len(stack)).astype(stack.dtype)
    else:
        found = stack.sum(axis=0, dtype=stack.dtype)
    return found


_EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "MAX": np.maximum,
    "MIN": np.minimum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}


_WITHOUT_NAN: dict[str, Callable[[Array, Array], Array]] = {"MAX": np.fmax, "MIN": np.fmin}


def part(expected: Expected, sizes: Sequence[int], number: int) -> Expected:
    """The stretch of a buffer that is rank ``number``'s, where ranks get ``sizes`` elements each."""
    start = sum(sizes[:number])
    stretch = slice(start, start + sizes[number])

    def cut(array: Array | float | None) -> Any:
        return array[stretch] if isinstance(array, np.ndarray) else array

    return Expected(*map(cut, (expected.values, expected.tolerance, expected.reach, expected.other)))


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
        if expected.tolerance is None:
            allowed = _identical(flat, expected.values)
        else:
            allowed = same | (apart <= expected.tolerance) | _overflown(flat.dtype, ours, expected.reach)
        if expected.other is not None:
            allowed = allowed | (np.isnan(theirs) & (ours == expected.other.astype(wide)))
    if allowed.all():
        return ""
    wrong = np.flatnonzero(~allowed)
    sizes = np.where(np.isnan(apart[wrong]), np.inf, apart[wrong])
    worst = wrong[int(np.argmax(sizes))]
    return (
        f"{len(wrong)} of {flat.size} values are wrong; the worst, at {worst}, "
        f"is {flat[worst]!s:.24} where {expected.values[worst]!s:.24} was due"
    )


def _identical(ours: Array, theirs: Array) -> Array:
    """Where two arrays are the same bit by bit; of other dtypes, the same number."""
    if ours.dtype.kind in "iub" or ours.dtype != theirs.dtype:
        return np.asarray(ours == theirs)
    one, two = (
        np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1) for array in (ours, theirs)
    )
    return np.asarray((one == two).all(axis=1))


def _overflown(dtype: np.dtype[Any], ours: Array, reach: Any) -> Any:
    """Sums that left the range of the data's dtype: inf where the wide sum is finite, or nan behind it."""
    largest = limits(dtype)
    if largest is None:
        return False
    return (reach * (1 + 8 * eps(dtype)) >= largest) & ~np.isfinite(ours)


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
def tiny(dtype: np.dtype[Any]) -> float:
    """The smallest number above 0 of a dtype; 0 for whole numbers."""
    found = _finfo(dtype)
    return float(found.smallest_subnormal) if found is not None else 0.0


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
