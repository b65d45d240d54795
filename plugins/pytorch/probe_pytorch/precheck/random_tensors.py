"""Tensors made from what was recorded of them: dtype, shape, largest and smallest value (guide 4.2).

Each is drawn from a generator of its own, seeded by the call and the place in it, so that a call gives the
same tensors whatever ran before it, and no two inputs of one shape are alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from probe_precheck import Range, Unbuildable, need_finite, never_random, range_of, seed_at

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def generator_for(seed: int, place: str) -> torch.Generator:
    """The generator of the tensor at ``place``, such as ``Functional.linear.0.forward.input.1``."""
    return torch.Generator().manual_seed(seed_at(seed, place, 7))


def random_tensor(
    leaf: Mapping[str, Any], dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    """A tensor of the recorded range.

    Raises:
        Unbuildable: No range was recorded, or the dtype is none that can be drawn.
    """
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    found = range_of(leaf)
    clean_low, clean_high = found.clean_low, found.clean_high
    if dtype is torch.bool:
        need_finite("a bool", clean_low, clean_high)
        least, most = int(min(clean_low, clean_high)), int(clean_high)
        return torch.randint(least, most + 1, shape, generator=generator) > 0
    if dtype.is_complex:
        raise never_random(dtype)
    if dtype in INTEGERS:
        return _edges(_integers(clean_low, clean_high, dtype, shape, generator), found)
    if not dtype.is_floating_point:
        raise Unbuildable(f"{dtype} is not supported for random inputs. SKIP.")
    return _edges(_floats(found, "Max_except_inf_nan" in leaf, dtype, shape, generator), found)


def _integers(
    low: float, high: float, dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    need_finite("an integer", low, high)
    least, most = _clamped(low, dtype), _clamped(max(low, high), dtype)
    if least == most:
        return torch.full(shape, least, dtype=dtype)
    top = min(most + 1, torch.iinfo(torch.int64).max)  # randint leaves its upper bound out
    return torch.randint(least, top, shape, generator=generator).to(dtype)


def _clamped(value: float, dtype: torch.dtype) -> int:
    """The whole number of the dtype that is nearest."""
    info = torch.iinfo(dtype)
    return min(max(int(value), info.min), info.max)


def _floats(
    found: Range, is_cleaned: bool, dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    low, high = found.clean_low, found.clean_high
    if math.isnan(high):
        return torch.full(shape, math.nan, dtype=dtype)
    if math.isinf(high) and math.isinf(found.high) and (is_cleaned or high == low):
        return torch.full(shape, high, dtype=torch.float32).to(dtype)  # nothing was finite
    info = torch.finfo(dtype)
    least = min(max(float(low), info.min), info.max) if not math.isnan(low) else float(high)
    most = min(max(float(high), info.min), info.max)
    wide = (
        torch.float64
        if dtype is torch.float64 or most - least > torch.finfo(torch.float32).max
        else torch.float32
    )
    drawn = torch.rand(shape, generator=generator, dtype=wide)
    if math.isinf(most - least):  # the range of float64 itself
        return (drawn * most + (1 - drawn) * least).to(dtype)
    return drawn.mul_(most - least).add_(least).clamp_(least, most).to(dtype)


def _edges(tensor: torch.Tensor, found: Range) -> torch.Tensor:
    """Put the recorded extremes, inf and nan where the guide puts them: first, second and last."""
    low, high, clean_low, clean_high = found
    flat = tensor.view(-1)
    if math.isnan(high) or math.isnan(low):
        if not tensor.is_floating_point():
            return tensor
        if flat.numel() <= 2:
            flat[0] = math.nan
            if not math.isnan(clean_high):
                flat[-1] = clean_high
            if flat.numel() == 1:
                flat[0] = math.nan
            return tensor
        flat[1] = math.nan
    elif math.isinf(high) and high == low:
        return tensor
    if not math.isnan(clean_low):
        flat[0] = clean_low if tensor.is_floating_point() else _clamped(clean_low, tensor.dtype)
    if not math.isnan(clean_high):
        flat[-1] = clean_high if tensor.is_floating_point() else _clamped(clean_high, tensor.dtype)
    if math.isinf(high):
        flat[-1] = high
    if math.isinf(low):
        flat[0] = low
    return tensor
