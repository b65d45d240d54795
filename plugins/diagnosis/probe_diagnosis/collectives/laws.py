"""Rules of collectives: the values that a rank must receive, computed from the values that all ranks sent.

Values that a collective only moves must arrive with identical bits. A collective may add in any order and in the
precision of the data. The error of a sum of n addends is at most ``(n + 1) * eps`` times the sum of the absolute
values. This is the first-order bound of Higham, "Accuracy and Stability of Numerical Algorithms", section 4.2, plus
the rounding of the result. See docs/collectives.md#laws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from probe_core.errors import format_count

Array = np.ndarray[Any, Any]

OVERFLOW_MARGIN_EPS = 8
"""Relative distance to the largest number of a dtype, in multiples of its eps, at which a sum may overflow."""

_EXACT: dict[str, Callable[[Array, Array], Array]] = {
    "MAX": np.maximum,
    "MIN": np.minimum,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
"""Operations with exact results."""

_WITHOUT_NAN: dict[str, Callable[[Array, Array], Array]] = {"MAX": np.fmax, "MIN": np.fmin}
"""The operations of ``_EXACT`` on devices that ignore nan."""


@dataclass(frozen=True, slots=True)
class ExpectedBuffer:
    """Values that a buffer must contain after a call, flattened.

    Attributes:
        values: The expected value of each element.
        tolerance: Largest accepted distance of each element from its expected value; None if all bits must be equal.
        max_magnitude: Largest absolute value of an intermediate result in any order of addition. If it exceeds the
            largest number of the dtype, inf and nan are accepted.
        values_without_nan: Values that are accepted where ``values`` are nan, because some devices ignore nan in
            MAX and MIN.
    """

    values: Array
    tolerance: Array | float | None = None
    max_magnitude: Array | float = 0.0
    values_without_nan: Array | None = None


def gather(arrays: Sequence[Array]) -> ExpectedBuffer:
    """Return the values of all ranks, concatenated in the order of the group."""
    return ExpectedBuffer(np.concatenate([array.reshape(-1) for array in arrays]))


def reduce(arrays: Sequence[Array], operation: str) -> ExpectedBuffer:
    """Return the values of all ranks, reduced element by element.

    Args:
        arrays: One array for each rank, all of the same shape and dtype.
        operation: ``SUM``, ``AVG``, ``PRODUCT``, ``MAX``, ``MIN``, ``BAND``, ``BOR`` or ``BXOR``.

    Raises:
        ValueError: The operation is not supported.
    """
    flat = [array.reshape(-1) for array in arrays]
    if operation in _EXACT:
        return _reduce_exactly(flat, operation)
    if operation not in ("SUM", "AVG", "PRODUCT"):
        raise ValueError(operation)
    if flat[0].dtype.kind in "iub":
        return ExpectedBuffer(_reduce_integers(np.stack(flat), operation))
    return _reduce_floats(flat, operation)


def _reduce_exactly(flat: Sequence[Array], operation: str) -> ExpectedBuffer:
    reduced = without_nan = flat[0]
    for array in flat[1:]:
        reduced = _EXACT[operation](reduced, array)
        without_nan = _WITHOUT_NAN.get(operation, _EXACT[operation])(without_nan, array)
    return ExpectedBuffer(reduced, tolerance=0.0, values_without_nan=without_nan)


def _reduce_floats(flat: Sequence[Array], operation: str) -> ExpectedBuffer:
    """Return the sum, average or product with its tolerance."""
    dtype, count = flat[0].dtype, len(flat)
    sum_dtype = _choose_sum_dtype(dtype)
    stack = np.stack([array.astype(sum_dtype) for array in flat])
    with np.errstate(all="ignore"):
        if operation == "PRODUCT":
            values: Array = stack.prod(axis=0)
            error_scale: Array = np.abs(values)
            max_magnitude = np.maximum(np.abs(stack), 1).prod(axis=0)
            underflow_scale = max_magnitude
        else:
            divisor = count if operation == "AVG" else 1
            values, error_scale = stack.sum(axis=0) / divisor, np.abs(stack).sum(axis=0) / divisor
            max_magnitude, underflow_scale = np.abs(stack).sum(axis=0), 1.0
        tolerance = error_scale * (count + 1) * get_eps(dtype) + count * underflow_scale * get_smallest(dtype)
        is_finite = np.isfinite(stack).all(axis=0)
    return ExpectedBuffer(values, np.where(is_finite, tolerance, 0.0), np.where(is_finite, max_magnitude, 0.0))


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


def extract_part(expected: ExpectedBuffer, sizes: Sequence[int], rank_index: int) -> ExpectedBuffer:
    """Return the part of a buffer that one rank receives.

    Args:
        expected: The whole buffer.
        sizes: Number of elements that each rank receives.
        rank_index: Index of the rank in the group.
    """
    start = sum(sizes[:rank_index])
    elements = slice(start, start + sizes[rank_index])

    def select_elements(array: Array | float | None) -> Any:
        return array[elements] if isinstance(array, np.ndarray) else array

    return ExpectedBuffer(
        select_elements(expected.values),
        select_elements(expected.tolerance),
        select_elements(expected.max_magnitude),
        select_elements(expected.values_without_nan),
    )


def describe_deviation(buffer: Array, expected: ExpectedBuffer) -> str:
    """Return a description of the wrong elements of a received buffer; empty if all elements are accepted.

    Args:
        buffer: The buffer, of any shape.
        expected: The expected values, with their tolerance.
    """
    flat = buffer.reshape(-1)
    if flat.size != expected.values.size:
        return f"{format_count(flat.size, 'value')} instead of {expected.values.size}"
    if not flat.size:
        return ""
    is_accepted, distances = _find_accepted(flat, expected)
    if is_accepted.all():
        return ""
    wrong = np.flatnonzero(~is_accepted)
    worst = wrong[int(np.argmax(np.where(np.isnan(distances[wrong]), np.inf, distances[wrong])))]
    values = f"{format_count(flat.size, 'value')} {'is' if len(wrong) == 1 else 'are'}"
    return (
        f"{len(wrong)} of {values} wrong; the worst, at flat index {worst}, "
        f"is {flat[worst]!s:.24} instead of {expected.values[worst]!s:.24}"
    )


def _find_accepted(flat: Array, expected: ExpectedBuffer) -> tuple[Array, Array]:
    """Return which elements of a flat buffer are accepted, and their distances from the expected values."""
    is_complex = "c" in (flat.dtype.kind, expected.values.dtype.kind)
    distance_dtype = np.complex128 if is_complex else np.float64
    with np.errstate(all="ignore"):
        received, expected_values = flat.astype(distance_dtype), expected.values.astype(distance_dtype)
        distances: Array = np.abs(received - expected_values)
        is_equal = (received == expected_values) | (np.isnan(received) & np.isnan(expected_values))
        if expected.tolerance is None:
            is_accepted = _compare_bits(flat, expected.values)
        else:
            may_overflow = _find_overflows(flat.dtype, received, expected.max_magnitude)
            is_accepted = is_equal | (distances <= expected.tolerance) | may_overflow
        if expected.values_without_nan is not None:
            without_nan = expected.values_without_nan.astype(distance_dtype)
            is_accepted = is_accepted | (np.isnan(expected_values) & (received == without_nan))
    return is_accepted, distances


def _compare_bits(received: Array, expected_values: Array) -> Array:
    """Return True for each element with equal bits.

    For integers, and if the dtypes differ, return True for each element with an equal value.
    """
    if received.dtype.kind in "iub" or received.dtype != expected_values.dtype:
        return np.asarray(received == expected_values)
    received_bytes, expected_bytes = (
        np.ascontiguousarray(array).view(np.uint8).reshape(array.size, -1) for array in (received, expected_values)
    )
    return np.asarray((received_bytes == expected_bytes).all(axis=1))


def _find_overflows(dtype: np.dtype[Any], received: Array, max_magnitude: Any) -> Any:
    """Return True for each inf or nan that a sum beyond the range of the dtype may have caused."""
    largest = get_largest(dtype)
    if largest is None:
        return False
    return (max_magnitude * (1 + OVERFLOW_MARGIN_EPS * get_eps(dtype)) >= largest) & ~np.isfinite(received)


def _choose_sum_dtype(dtype: np.dtype[Any]) -> type[Any]:
    """Return the dtype that sums of this dtype are computed in."""
    if dtype.kind in "iub":
        return np.int64
    return np.complex128 if dtype.kind == "c" else np.float64


@lru_cache(maxsize=64)
def get_eps(dtype: np.dtype[Any]) -> float:
    """Return the distance from 1 to the next number of a dtype; 0 for integers and booleans."""
    finfo = _finfo(dtype)
    return float(finfo.eps) if finfo is not None else 0.0


@lru_cache(maxsize=64)
def get_smallest(dtype: np.dtype[Any]) -> float:
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
