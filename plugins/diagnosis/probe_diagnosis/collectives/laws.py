"""Laws of collectives: the values that a rank must receive, computed from those that all ranks sent.

Values that are only moved must arrive bit by bit. Sums may be added in any order and in the precision of the
data: with n addends they may be off by ``(n + 1) * eps`` times the sum of the moduli (Higham, "Accuracy and
Stability of Numerical Algorithms", section 4.2, to first order, and the rounding of the result). See
docs/collectives.md#laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from probe_core.errors import format_count

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class ExpectedBuffer:
    """Values that a buffer must hold after a call, flattened.

    Attributes:
        values: The values due, one for each element.
        tolerance: Largest distance that each element may have from these; None if every bit must be equal.
        reach: Largest modulus that any order of adding may have reached. If it lies beyond the largest number
            of the dtype, inf and nan are accepted.
        other: Values that are accepted in place of nan: some devices drop nan in MAX and MIN.
    """

    values: Array
    tolerance: Array | float | None = None
    reach: Array | float = 0.0
    other: Array | None = None


def gather(arrays: Sequence[Array]) -> ExpectedBuffer:
    """Return the values of all ranks, concatenated in the order of the group."""
    return ExpectedBuffer(np.concatenate([array.reshape(-1) for array in arrays]))


def reduce(arrays: Sequence[Array], operation: str) -> ExpectedBuffer:
    """Return the values of all ranks, reduced element by element.

    Args:
        arrays: One array for each rank, all of the same shape and dtype.
        operation: ``SUM``, ``AVG``, ``PRODUCT``, ``MAX``, ``MIN``, ``BAND``, ``BOR`` or ``BXOR``.

    Raises:
        ValueError: The operation is none of these.
    """
    flat = [array.reshape(-1) for array in arrays]
    if operation in _EXACT:
        reduced = without_nan = flat[0]
        for array in flat[1:]:
            reduced = _EXACT[operation](reduced, array)
            without_nan = _WITHOUT_NAN.get(operation, _EXACT[operation])(without_nan, array)
        return ExpectedBuffer(reduced, 0.0, 0.0, without_nan)
    if operation not in ("SUM", "AVG", "PRODUCT"):
        raise ValueError(operation)
    if flat[0].dtype.kind in "iub":
        return ExpectedBuffer(_reduce_integers(np.stack(flat), operation))
    wide = _choose_sum_dtype(flat[0].dtype)
    stack = np.stack([array.astype(wide) for array in flat])
    with np.errstate(all="ignore"):
        if operation == "PRODUCT":
            values: Array = stack.prod(axis=0)
            size: Array = np.abs(values)
            reach = np.maximum(np.abs(stack), 1).prod(axis=0)
            small = reach
        else:
            divisor = len(flat) if operation == "AVG" else 1
            values, size = stack.sum(axis=0) / divisor, np.abs(stack).sum(axis=0) / divisor
            reach, small = np.abs(stack).sum(axis=0), 1.0
        tolerance = size * (len(flat) + 1) * eps(flat[0].dtype) + len(flat) * small * tiny(flat[0].dtype)
        finite = np.isfinite(stack).all(axis=0)
    return ExpectedBuffer(values, np.where(finite, tolerance, 0.0), np.where(finite, reach, 0.0))


def _reduce_integers(stack: Array, operation: str) -> Array:
    """Return the reduction of integers or booleans; integers wrap around as they do on every device."""
    if stack.dtype.kind == "b":
        reduced: Array = np.asarray(stack.all(axis=0) if operation == "PRODUCT" else stack.any(axis=0))
    elif operation == "PRODUCT":
        reduced = stack.prod(axis=0, dtype=stack.dtype)
    elif operation == "AVG":
        reduced = np.trunc(stack.sum(axis=0) / len(stack)).astype(stack.dtype)
    else:
        reduced = stack.sum(axis=0, dtype=stack.dtype)
    return reduced


_EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "MAX": np.maximum,
    "MIN": np.minimum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
"""Operations that round nothing."""


_WITHOUT_NAN: dict[str, Callable[[Array, Array], Array]] = {"MAX": np.fmax, "MIN": np.fmin}
"""The same operations on devices that drop nan."""


def extract_part(expected: ExpectedBuffer, sizes: Sequence[int], number: int) -> ExpectedBuffer:
    """Return the part of a buffer that one rank receives.

    Args:
        expected: The whole buffer.
        sizes: Number of elements that each rank receives.
        number: Place of the rank in the group.
    """
    start = sum(sizes[:number])
    place = slice(start, start + sizes[number])

    def cut(array: Array | float | None) -> Any:
        return array[place] if isinstance(array, np.ndarray) else array

    return ExpectedBuffer(*map(cut, (expected.values, expected.tolerance, expected.reach, expected.other)))


def describe_breach(buffer: Array, expected: ExpectedBuffer) -> str:
    """Return the deviation of a received buffer in words; empty if it holds the values due.

    Args:
        buffer: The buffer, of any shape.
        expected: The values due.
    """
    flat = buffer.reshape(-1)
    if flat.size != expected.values.size:
        return f"{format_count(flat.size, 'value')} instead of {expected.values.size}"
    if not flat.size:
        return ""
    wide = np.complex128 if "c" in (flat.dtype.kind, expected.values.dtype.kind) else np.float64
    with np.errstate(all="ignore"):
        received, due = flat.astype(wide), expected.values.astype(wide)
        distance = np.abs(received - due)
        same = (received == due) | (np.isnan(received) & np.isnan(due))
        if expected.tolerance is None:
            allowed = _compare_bits(flat, expected.values)
        else:
            overflown = _find_overflows(flat.dtype, received, expected.reach)
            allowed = same | (distance <= expected.tolerance) | overflown
        if expected.other is not None:
            allowed = allowed | (np.isnan(due) & (received == expected.other.astype(wide)))
    if allowed.all():
        return ""
    wrong = np.flatnonzero(~allowed)
    sizes = np.where(np.isnan(distance[wrong]), np.inf, distance[wrong])
    worst = wrong[int(np.argmax(sizes))]
    values = f"{format_count(flat.size, 'value')} {'is' if len(wrong) == 1 else 'are'}"
    return (
        f"{len(wrong)} of {values} wrong; the worst, at flat index {worst}, "
        f"is {flat[worst]!s:.24} instead of {expected.values[worst]!s:.24}"
    )


def _compare_bits(received: Array, due: Array) -> Array:
    """Return True for each element whose bits are equal; for arrays of two dtypes, whose numbers are."""
    if received.dtype.kind in "iub" or received.dtype != due.dtype:
        return np.asarray(received == due)
    received_bytes, due_bytes = (
        np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1) for array in (received, due)
    )
    return np.asarray((received_bytes == due_bytes).all(axis=1))


def _find_overflows(dtype: np.dtype[Any], received: Array, reach: Any) -> Any:
    """Return True for each inf or nan that a sum beyond the range of the dtype may have caused."""
    largest = get_largest(dtype)
    if largest is None:
        return False
    return (reach * (1 + 8 * eps(dtype)) >= largest) & ~np.isfinite(received)


def _choose_sum_dtype(dtype: np.dtype[Any]) -> type[Any]:
    """Return the dtype that sums of this dtype are computed in."""
    if dtype.kind in "iub":
        return np.int64
    return np.complex128 if dtype.kind == "c" else np.float64


@lru_cache(maxsize=64)
def eps(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a dtype; 0 for integers and booleans."""
    finfo = _finfo(dtype)
    return float(finfo.eps) if finfo is not None else 0.0


@lru_cache(maxsize=64)
def tiny(dtype: np.dtype[Any]) -> float:
    """Return the smallest number above 0 of a dtype; 0 for integers and booleans."""
    finfo = _finfo(dtype)
    return float(finfo.smallest_subnormal) if finfo is not None else 0.0


@lru_cache(maxsize=64)
def get_largest(dtype: np.dtype[Any]) -> float | None:
    """Return the largest number of a dtype; None for integers and booleans."""
    finfo = _finfo(dtype)
    return float(finfo.max) if finfo is not None else None


def _finfo(dtype: np.dtype[Any]) -> Any:
    """Return the limits of a floating-point dtype; None for integers and booleans."""
    if dtype.kind in "iub":
        return None
    if dtype.kind in "fc":
        return np.finfo(dtype)
    import ml_dtypes  # installed with every reader of bfloat16

    finfo: Any = ml_dtypes.finfo
    return finfo(dtype)
