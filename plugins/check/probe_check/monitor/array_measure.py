"""The operations of the monitor on arrays in host memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from probe_recording.values.arrays import Array

SMALLEST_SQUARED = 1e-150
"""Norms below this come from squares that float64 cannot represent with full precision."""


def measure_array(array: Array, operations: Sequence[str], epsilon: float) -> tuple[float, ...]:
    """Return the results of operations on an array, as ``pytorch.measurement.measure`` defines them.

    Args:
        array: The array.
        operations: Names of operations.
        epsilon: The size below which an element counts as zero.
    """
    with np.errstate(all="ignore"):
        return tuple(float(_OPERATIONS[name](array, epsilon)) for name in operations)


def _compute_norm(array: Array, _: float) -> float:
    flat = array.reshape(-1)
    parts = flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    wide = parts.astype(np.float64)
    norm = float(np.sqrt(np.sum(np.square(wide))))
    if wide.size and (math.isinf(norm) or norm < SMALLEST_SQUARED):
        largest = float(np.abs(wide).max())
        if largest and math.isfinite(largest):
            return largest * float(np.sqrt(np.sum(np.square(wide / largest))))
    return norm


def _compute_mean(array: Array, _: float) -> Any:
    is_undefined = not array.size or array.dtype.kind == "c"
    return math.nan if is_undefined else array.mean(dtype=np.float64)


def _create_extreme(name: str) -> Callable[[Array, float], Any]:
    def extreme(array: Array, _: float) -> Any:
        is_undefined = not array.size or array.dtype.kind == "c"
        return math.nan if is_undefined else getattr(array, name)()

    return extreme


def _compute_zeros(array: Array, epsilon: float) -> Any:
    wide = array.astype(np.float32) if array.dtype == np.float16 else array  # float16 rounds epsilon to 0
    return np.mean(np.abs(wide) < epsilon, dtype=np.float64) if array.size else math.nan


_OPERATIONS: Mapping[str, Callable[[Array, float], Any]] = {
    "norm": _compute_norm,
    "min": _create_extreme("min"),
    "max": _create_extreme("max"),
    "mean": _compute_mean,
    "zeros": _compute_zeros,
    "nans": lambda array, _: np.isnan(array).sum() if array.dtype.kind in "fc" else 0,
}
