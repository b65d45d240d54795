"""Distance of two tensors without the constants of an additive mask, which would dominate all other elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from probe_core.model import Value
from probe_core.model.columns import convert_to_float
from probe_core.model.measure import OpenPair
from probe_metrics.dtype_limits import get_eps
from probe_metrics.statistics import is_number
from probe_metrics.tally import Array
from probe_metrics.thresholds import load_thresholds

MAX_SQUARABLE = 1e150
"""Largest magnitude whose squares can be added in float64 without an overflow."""


def is_masked(low: float, high: float) -> bool:
    """Return True if the extrema of a tensor are those of a tensor with masked elements.

    A mask adds a large negative number, such as -1e9, the least number of the dtype, or -inf; the other
    elements are smaller by orders of magnitude. The limits are in ``thresholds.yaml`` (``drift``, ``mask``).
    """
    return bool(are_masked(np.float64(low), np.float64(high)))


def are_masked(low: Any, high: Any) -> Array:
    """Return ``is_masked`` of the minima and maxima of several tensors."""
    limits = load_thresholds("drift")["mask"]
    with np.errstate(all="ignore"):
        is_large = (low <= -limits["least"]) & (abs(high) <= limits["share"] * abs(low))
    masked: Array = np.where(low == -np.inf, np.isfinite(high), is_large)
    return masked


def estimate_hidden_count(value: Value) -> float | None:
    """Return an estimate of the number of masked elements, by the minimum and the mean of a masked tensor.

    None if the mask's constant is -inf, if the other elements may add up to half a constant, or if maximum,
    minimum or mean were not recorded as numbers.
    """
    numbers = [convert_to_float(number) for number in value.statistics[:3] if is_number(number)]
    if len(numbers) < 3:
        return None
    high, low, mean = numbers
    size = math.prod(value.shape or ())
    if not (math.isfinite(low) and math.isfinite(mean) and low):
        return None
    count = mean / low * size
    inexact = abs(high / low) * size + get_eps("float32") * abs(count)
    return count if inexact < 0.5 else None


def measure_unmasked(pair: OpenPair) -> tuple[float, float] | None:
    """Return the root mean square of the difference and of the golden over all unmasked elements.

    An element is masked if it is -inf, or near the minimum of its side. The result is None if no element is masked, if
    another element is nan, inf or above ``MAX_SQUARABLE``, or if the sides mask different elements. If all elements are
    masked, both numbers are 0.
    """
    share = load_thresholds("drift")["mask"]["share"]
    lows = [_find_mask_constant(pair, side) for side in (0, 1)]
    differences, squares, count = 0.0, 0.0, 0
    masked = 0
    for block in pair.blocks():
        if block[0].dtype.kind == "c":
            return None
        masks = [_is_masked(values, low, share) for values, low in zip(block, lows)]
        if not np.array_equal(masks[0], masks[1]):
            return None
        target, golden = (values[~masks[0]] for values in block)
        if not (np.isfinite(target).all() and np.isfinite(golden).all()):
            return None
        if max(np.max(np.abs(side), initial=0.0) for side in (target, golden)) > MAX_SQUARABLE:
            return None
        masked += int(masks[0].sum())
        differences += float(np.sum((target - golden) ** 2))
        squares += float(np.sum(golden**2))
        count += golden.size
    if not masked:
        return None
    return (math.sqrt(differences / count), math.sqrt(squares / count)) if count else (0.0, 0.0)


def _find_mask_constant(pair: OpenPair, side: int) -> float:
    """Return the smallest finite element of one side, if it is that of a mask; otherwise -inf."""
    least = load_thresholds("drift")["mask"]["least"]
    low = min(float(np.min(block[side].real, initial=0.0, where=np.isfinite(block[side]))) for block in pair.blocks())
    return low if low <= -least else -math.inf


def _is_masked(values: Array, low: float, share: float) -> Array:
    """Return True for elements that are -inf or near the constant ``low`` of the mask."""
    masked: Array = values == -math.inf
    if math.isfinite(low):
        masked |= np.abs(values - low) <= share * abs(low)
    return masked
