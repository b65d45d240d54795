"""Tensors made from what was recorded of them: dtype, shape, largest and smallest value (guide 4.2).

Each has a generator of its own, seeded by the call and the place in it, so that a call gives the same tensors
whatever ran before it, and no two inputs of one shape are alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from probe_precheck import Range, need_finite, never_random, range_of, seed_at

from probe_mindspore.precheck.tensors import STORED, Values

LARGEST = {"BFloat16": 3.3895313892515355e38}
"""The largest number of a dtype that numpy lacks."""


def generator_for(seed: int, place: str) -> np.random.Generator:
    """The generator of the tensor at ``place``, such as ``Mint.add.0.forward.input.1``."""
    return np.random.default_rng(seed_at(seed, place, 16))


def random_array(
    leaf: Mapping[str, Any], dtype: str, shape: tuple[int, ...], generator: np.random.Generator
) -> Values:
    """Values of the recorded range; bfloat16 rounded, in float32.

    The first is the recorded minimum, the last the maximum. Whole numbers come from the whole range, truth
    values from what was recorded of them.

    Raises:
        Unbuildable: No range was recorded, or the dtype is none that can be drawn.
    """
    stored = np.dtype(STORED[dtype])
    if 0 in shape:
        return np.empty(shape, stored)
    if stored.kind == "c":
        raise never_random(dtype)
    found = range_of(leaf)
    if stored.kind == "f":
        values = _floats(found, dtype, stored, shape, generator)
    else:
        values = _integers(found, stored, shape, generator)
    return rounded(_edged(values, found), dtype)


def rounded(values: Values, dtype: str) -> Values:
    """The values as the dtype holds them: bfloat16 in float32, all else as it is."""
    if dtype != "BFloat16":
        return values
    import ml_dtypes

    with np.errstate(all="ignore"):
        narrow: Values = values.astype(ml_dtypes.bfloat16).astype(np.float32)
    return narrow


def _integers(
    found: Range, stored: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> Values:
    """Whole numbers and truth values."""
    need_finite("an integer", *found)
    if stored.kind == "b":
        ends = sorted((int(found.low), int(found.high)))
        drawn: Values = generator.integers(ends[0], ends[1], shape, endpoint=True)
        return np.asarray(drawn > 0)
    info = np.iinfo(stored)
    least = min(max(int(found.low), info.min), info.max)
    most = min(max(int(found.high), least), info.max)
    whole: Values = generator.integers(least, most, shape, stored, endpoint=True)
    return whole


def _floats(
    found: Range, dtype: str, stored: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator
) -> Values:
    """Evenly spread numbers; an infinite end is the end of the dtype."""
    low, high = found.clean_low, found.clean_high
    if math.isnan(high):
        return np.full(shape, math.nan, stored)
    if math.isinf(high) and high == low:
        return np.full(shape, high, stored)
    most = LARGEST.get(dtype, float(np.finfo(stored).max))
    first = float(high) if math.isnan(low) else min(max(float(low), -most), most)
    last = min(max(float(high), -most), most)
    drawn = generator.random(shape)
    values: Values = drawn * last + (1 - drawn) * first
    return np.clip(values, first, last).astype(stored)


def _edged(values: Values, found: Range) -> Values:
    """The recorded extremes, inf and nan where the guide puts them: first, second and last."""
    flat = values.reshape(-1)  # a view: values were just made
    is_float = values.dtype.kind == "f"
    if math.isnan(found.high) or math.isnan(found.low):
        flat[min(1, flat.size - 1)] = math.nan
        if flat.size <= 2:
            flat[0] = math.nan
        if flat.size > 1 and not math.isnan(found.clean_high):
            flat[-1] = found.clean_high
        if flat.size > 2 and not math.isnan(found.clean_low):
            flat[0] = found.clean_low
        return values
    ends = {0: (found.clean_low, found.low), -1: (found.clean_high, found.high)}
    for place, (clean, original) in ends.items():
        if is_float:
            flat[place] = original if math.isinf(original) else clean
        else:
            flat[place] = _within(int(clean), values.dtype)
    return values


def _within(value: int, dtype: np.dtype[Any]) -> int:
    if dtype.kind == "b":
        return int(value > 0)
    info = np.iinfo(dtype)
    return min(max(value, int(info.min)), int(info.max))
