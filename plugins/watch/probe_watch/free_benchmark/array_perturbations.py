"""The changes of the inputs of a second run, in NumPy (docs/free-benchmark.md#perturbations).

Arrays of bfloat16 numbers are float32 arrays that hold such numbers; their dtype is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from probe_watch.free_benchmark.settings import ChangeMode

Array = NDArray[Any]
HALVES = ("float16", "bfloat16")
_BITS: dict[str, tuple[type[Any], int]] = {
    "float16": (np.uint16, 1),
    "bfloat16": (np.uint32, 1 << 16),
    "float32": (np.uint32, 1),
    "float64": (np.uint64, 1),
}
"""The unsigned integer of the size of an array's elements, and the last bit of the dtype in it."""


def round_to_bfloat16(array: Array) -> Array:
    """Return float32 numbers rounded to the nearest bfloat16 number; ties go to the even one."""
    wide = np.ascontiguousarray(array, np.float32)
    bits = wide.view(np.uint32)
    rounded = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) & np.uint32(0xFFFF0000)).view(np.float32)
    result: Array = np.where(np.isnan(wide), wide, rounded)
    return result.reshape(array.shape)


def add_noise(array: Array, dtype: str, noise: Mapping[str, float]) -> Array | None:
    """Return ``x + noise`` where ``|x| > sqrt(noise)``; None if no element is that large.

    Args:
        array: The array; nan and infinities stay as they are.
        dtype: The name of its dtype.
        noise: The size of the noise, by dtype; arrays of other dtypes are not changed.
    """
    size = noise.get(dtype)
    if size is None or not array.size:
        return None
    large = np.abs(array) > np.asarray(size**0.5, array.dtype)
    if not large.any():
        return None
    wide = array if dtype == "float64" else array.astype(np.float32)
    with np.errstate(over="ignore"):
        noisy = (wide + np.asarray(size, wide.dtype)).astype(array.dtype)
    if dtype == "bfloat16":
        noisy = round_to_bfloat16(noisy)
    result: Array = np.where(large, noisy, array)
    return result


def flip_last_bit(array: Array, dtype: str) -> Array | None:
    """Return ``x`` with its last bit flipped where ``|x|`` is larger than the smallest normal number.

    Returns:
        The new array; None if the dtype has no integer of its size, or no element is that large. Nan and
        infinities stay as they are.
    """
    if dtype not in _BITS or not array.size:
        return None
    size = np.abs(array)
    large = (size > np.finfo(array.dtype).tiny) & np.isfinite(size)
    if not large.any():
        return None
    kind, bit = _BITS[dtype]
    flipped = (np.ascontiguousarray(array).view(kind) ^ kind(bit)).view(array.dtype)
    result: Array = np.where(large, flipped.reshape(array.shape), array)
    return result


def swap_ends(array: Array) -> Array | None:
    """Return a copy whose first and last parts are swapped.

    These are ``x[0]`` and ``x[-1]`` of a vector, and ``x[0][0]`` and ``x[-1][-1]`` of other arrays.

    Returns:
        The copy; None if there are no two parts.
    """
    if array.ndim == 0 or (array.ndim == 1 and len(array) < 2):
        return None
    if array.ndim > 1 and (not array.shape[1] or not array.shape[0] or max(array.shape[:2]) < 2):
        return None
    result: Array = array.copy()
    first: Any = 0 if array.ndim == 1 else (0, 0)
    last: Any = -1 if array.ndim == 1 else (-1, -1)
    result[first], result[last] = array[last], array[first]
    return result


def create_array_changer(mode: ChangeMode, noise: Mapping[str, float]) -> Callable[[Array, str], Array | None]:
    """Return the function that changes one array of a named dtype; it returns None if it changes nothing.

    Args:
        mode: A mode that changes one argument.
        noise: The size of the noise, by dtype.
    """
    if mode is ChangeMode.ADD_NOISE:
        return lambda array, dtype: add_noise(array, dtype, noise)
    if mode is ChangeMode.BIT_NOISE:
        return flip_last_bit
    if mode is ChangeMode.CHANGE_VALUE:
        return lambda array, dtype: swap_ends(array)
    return lambda array, dtype: array
