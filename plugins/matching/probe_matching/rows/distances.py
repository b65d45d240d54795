"""Distances between the selected elements of both runs, which settle what shapes leave open."""

from __future__ import annotations

import numpy as np

from probe_core.model.columns import Array

MAX_DISTANCE = 2.0
"""Distance of arrays that cannot be measured, or whose nan or inf are at different places."""


def compute_distance(target: Array, golden: Array) -> float:
    """Return the root mean square of the difference relative to that of both arrays; 0 for equal ones.

    nan and inf at the same places count as equal. The result is at most ``MAX_DISTANCE``.
    """
    if target.shape != golden.shape:
        return MAX_DISTANCE
    first, second = widen(target), widen(golden)
    rare = [~np.isfinite(side) for side in (first, second)]
    if not np.array_equal(rare[0], rare[1]) or not np.array_equal(first[rare[0]], second[rare[1]], equal_nan=True):
        return MAX_DISTANCE
    first, second = first[~rare[0]], second[~rare[1]]
    largest = max(np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0))
    if not largest:
        return 0.0
    first, second = first / largest, second / largest
    scale = np.sqrt((first**2).sum() + (second**2).sum())
    return float(min(MAX_DISTANCE, np.sqrt(2 * ((first - second) ** 2).sum()) / scale)) if scale else 0.0


def estimate_scale(target: Array, golden: Array) -> float | None:
    """Return the factor that brings the target nearest to the golden; None if it has no direction."""
    first, second = widen(target).ravel(), widen(golden).ravel()
    if first.shape != second.shape:
        return None
    are_finite = np.isfinite(first) & np.isfinite(second)
    first, second = first[are_finite], second[are_finite]
    largest = np.abs(first).max(initial=0.0), np.abs(second).max(initial=0.0)
    if not (largest[0] and largest[1]):
        return None
    first, second = first / largest[0], second / largest[1]
    factor = float(first @ second / (first @ first) * (largest[1] / largest[0]))
    return factor if factor > 0 else None


def widen(array: Array) -> Array:
    """Return an array as float64; a complex one as its parts."""
    if array.dtype.kind == "c":
        return np.stack((array.real, array.imag)).astype(np.float64)
    return array.astype(np.float64)
