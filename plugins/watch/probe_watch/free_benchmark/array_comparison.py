"""The comparison of two outputs in NumPy (docs/free-benchmark.md#rules)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from probe_watch.free_benchmark.array_perturbations import Array, round_to_bfloat16
from probe_watch.free_benchmark.outcome import OutputDifference
from probe_watch.free_benchmark.outputs import NotComparable
from probe_watch.free_benchmark.thresholds import CpuLimits

CHUNK_BYTES = 16 * 1024 * 1024
"""The size of the parts that the ratio is computed in, which bounds the memory for it."""


def compute_norm_ratio(original: Array, changed: Array, floor: float, dtype: str) -> float | OutputDifference:
    """Return the largest ratio of two elements at the same place, in either direction.

    Magnitudes below ``floor`` count as ``floor``. Elements that are nan in both arrays, or the same
    infinity, are equal. An empty array has the ratio 1. The division is made in ``dtype``; that of integers
    and truth values in float64.

    Args:
        original: The output of the program.
        changed: The output of the second run.
        floor: The smallest magnitude that is distinguished from 0.
        dtype: The name of the dtype of ``changed``, to which ``original`` is converted.

    Returns:
        The ratio; ``Difference.SIGN`` if an element changes its sign and the product is below
        ``-floor ** 2``; ``Difference.NOT_FINITE`` if an element is finite in one array only.

    Raises:
        NotComparable: The shapes differ.
    """
    if original.shape != changed.shape:
        raise NotComparable("shapes differ")
    if np.iscomplexobj(original) and not np.iscomplexobj(changed):
        original = original.real
    kind = changed.dtype if np.issubdtype(changed.dtype, np.inexact) else np.dtype(np.float64)
    with np.errstate(all="ignore"):
        first, second = (np.ascontiguousarray(a, kind).reshape(-1) for a in (original, changed))
        if dtype == "bfloat16":
            first = round_to_bfloat16(first)
        if kind.kind == "c":
            real = np.float32 if kind.itemsize == 8 else np.float64
            first, second = first.view(real), second.view(real)
        ratio = 1.0
        size = max(1, CHUNK_BYTES // second.itemsize)
        for start in range(0, second.size, size):
            part = _compute_chunk_ratio(first[start : start + size], second[start : start + size], floor, dtype)
            if isinstance(part, OutputDifference):
                return part
            ratio = max(ratio, part)
    return ratio


def _compute_chunk_ratio(original: Array, changed: Array, floor: float, dtype: str) -> float | OutputDifference:
    finite = np.isfinite(original) & np.isfinite(changed)
    if not finite.all():
        is_same = (original == changed) | (np.isnan(original) & np.isnan(changed))
        if not (finite | is_same).all():
            return OutputDifference.NOT_FINITE
        ones = np.ones_like(changed)
        original, changed = np.where(finite, original, ones), np.where(finite, changed, ones)
    if float((original * changed).min()) < -(floor**2):
        return OutputDifference.SIGN
    least: Any = np.asarray(floor, changed.dtype)
    if dtype == "bfloat16":
        least = round_to_bfloat16(least)
    ratios = np.maximum(np.abs(original), least) / np.maximum(np.abs(changed), least)
    if dtype == "bfloat16":
        ratios = round_to_bfloat16(ratios)
    largest, smallest = float(ratios.max()), float(ratios.min())
    return max(largest, 1 / smallest if smallest else math.inf)


def is_close_to_cpu(actual: Array, reference: Array, limits: CpuLimits) -> bool:
    """Return True if a device's output agrees with that of the CPU.

    Small elements of ``actual`` are compared by their absolute error, others by their relative error, and the
    mean of the signed errors must not exceed the balance; all in float64. Empty arrays agree. If the
    reference holds nan or an infinity, the arrays count as agreeing; an element that is not finite on the
    device only does not agree.

    Args:
        actual: The output of the device.
        reference: The output of the CPU.
        limits: The limits for the dtype of ``actual``.

    Raises:
        NotComparable: The shapes differ.
    """
    if actual.shape != reference.shape:
        raise NotComparable("shapes differ")
    a, g = _widen(actual), _widen(reference)
    if not np.isfinite(g).all() or not a.size:
        return True
    if a.shape != g.shape or not np.isfinite(a).all():
        return False
    with np.errstate(all="ignore"):
        error = a - g
        small = np.abs(a) < limits.small
        if (np.abs(error)[small] > limits.absolute).any():
            return False
        if ((np.abs(error) / np.abs(g))[~small] > limits.relative).any():
            return False
        scale = np.where(np.abs(g) >= limits.small, np.abs(g), 1.0)
        return abs(float((error / scale).mean())) <= limits.balance


def _widen(array: Array) -> Array:
    if np.iscomplexobj(array):
        return np.stack([array.real, array.imag]).astype(np.float64)
    return array.astype(np.float64)
