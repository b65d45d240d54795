"""Random tensors made from a recorded dtype, shape, maximum and minimum (docs/standards.md#inputs).

Each tensor has a generator of its own, seeded by its call and its place in the call. So a call has the same
tensors whatever ran before it, and no two inputs of one shape are alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck.api import derive_seed, read_range
from probe_precheck.rebuild import Range, check_finite_range, create_not_random_error

from probe_mindspore.precheck.tensors import STORAGE_DTYPES, Values

MAX_VALUES = {"BFloat16": 3.3895313892515355e38}
"""Largest numbers of dtypes that numpy lacks."""


def create_generator(seed: int, place: str) -> np.random.Generator:
    """Return the generator of the tensor at ``place``, such as ``Mint.add.0.forward.input.1``."""
    return np.random.default_rng(derive_seed(seed, place, 16))


def draw_array(leaf: Mapping[str, Any], dtype: str, shape: tuple[int, ...], generator: np.random.Generator) -> Values:
    """Return random values of the recorded range; the first is the minimum, the last the maximum.

    Args:
        leaf: The recorded description of the tensor.
        dtype: MindSpore's name of its dtype; bfloat16 is rounded, and returned as float32.
        shape: Its shape.
        generator: Draws the values.

    Raises:
        Unbuildable: No range was recorded, or values of the dtype cannot be drawn.
    """
    stored = np.dtype(STORAGE_DTYPES[dtype])
    if 0 in shape:
        return np.empty(shape, stored)
    if stored.kind == "c":
        raise create_not_random_error(dtype)
    limits = read_range(leaf)
    if stored.kind == "f":
        values = _draw_floats(limits, dtype, stored, shape, generator)
    else:
        values = _draw_integers(limits, stored, shape, generator)
    return round_to_dtype(_set_extremes(values, limits), dtype)


def round_to_dtype(values: Values, dtype: str) -> Values:
    """Return values rounded to bfloat16, as float32, if that is their dtype; others unchanged."""
    if dtype != "BFloat16":
        return values
    import ml_dtypes

    with np.errstate(all="ignore"):
        narrow: Values = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    return narrow


def _draw_integers(
    limits: Range, stored: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> Values:
    """Return random integers, evenly distributed, or booleans among the recorded ones."""
    check_finite_range("an integer", *limits)
    if stored.kind == "b":
        ends = sorted((int(limits.low), int(limits.high)))
        drawn: Values = generator.integers(ends[0], ends[1], shape, endpoint=True)
        return np.asarray(drawn > 0)
    info = np.iinfo(stored)
    least = min(max(int(limits.low), info.min), info.max)
    most = min(max(int(limits.high), least), info.max)
    whole: Values = generator.integers(least, most, shape, stored, endpoint=True)
    return whole


def _draw_floats(
    limits: Range, dtype: str, stored: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> Values:
    """Return random floating-point numbers, evenly distributed; an infinite end is that of the dtype."""
    low, high = limits.clean_low, limits.clean_high
    if math.isnan(high):
        return np.full(shape, math.nan, stored)
    if math.isinf(high) and high == low:
        return np.full(shape, high, stored)
    most = MAX_VALUES.get(dtype, float(np.finfo(stored).max))
    first = float(high) if math.isnan(low) else min(max(float(low), -most), most)
    last = min(max(float(high), -most), most)
    drawn = generator.random(shape)
    values: Values = drawn * last + (1 - drawn) * first
    return np.clip(values, first, last).astype(stored)


def _set_extremes(values: Values, limits: Range) -> Values:
    """Put the recorded extremes, inf and nan at the first, second and last place, as msprobe does."""
    flat = values.reshape(-1)  # a view, for values are contiguous
    is_float = values.dtype.kind == "f"
    if math.isnan(limits.high) or math.isnan(limits.low):
        flat[min(1, flat.size - 1)] = math.nan
        if flat.size <= 2:
            flat[0] = math.nan
        if flat.size > 1 and not math.isnan(limits.clean_high):
            flat[-1] = limits.clean_high
        if flat.size > 2 and not math.isnan(limits.clean_low):
            flat[0] = limits.clean_low
        return values
    ends = {0: (limits.clean_low, limits.low), -1: (limits.clean_high, limits.high)}
    for place, (clean, original) in ends.items():
        if is_float:
            flat[place] = original if math.isinf(original) else clean
        else:
            flat[place] = _clamp_integer(int(clean), values.dtype)
    return values


def _clamp_integer(value: int, dtype: np.dtype[Any]) -> int:
    """Return an integer limited to the range of a dtype."""
    if dtype.kind == "b":
        return int(value > 0)
    info = np.iinfo(dtype)
    return min(max(value, int(info.min)), int(info.max))
