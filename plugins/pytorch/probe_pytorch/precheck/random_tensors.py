"""Random tensors with a recorded dtype, shape, maximum and minimum (docs/standards.md#inputs).

Each tensor has a random generator of its own, seeded by the call and the place in it. So a call gets the
same tensors whatever ran before it, and two inputs of one shape differ.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from probe_precheck.api import Unbuildable, derive_seed, read_range
from probe_precheck.rebuild import Range, check_finite_range, create_not_random_error

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def create_generator(seed: int, place: str) -> torch.Generator:
    """Return the generator for the tensor at ``place``, such as ``Functional.linear.0.forward.input.1``."""
    return torch.Generator().manual_seed(derive_seed(seed, place, 7))


def draw_tensor(
    leaf: Mapping[str, Any], dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    """Return a random tensor of the recorded range.

    Args:
        leaf: The recorded leaf, with ``Max`` and ``Min``.
        dtype: The dtype.
        shape: The shape.
        generator: The source of random numbers.

    Raises:
        Unbuildable: No range was recorded, or there are no random tensors of this dtype.
    """
    if 0 in shape:
        return torch.empty(shape, dtype=dtype)
    recorded = read_range(leaf)
    clean_low, clean_high = recorded.clean_low, recorded.clean_high
    if dtype is torch.bool:
        check_finite_range("a bool", clean_low, clean_high)
        least, most = int(min(clean_low, clean_high)), int(clean_high)
        return torch.randint(least, most + 1, shape, generator=generator) > 0
    if dtype.is_complex:
        raise create_not_random_error(dtype)
    if dtype in INTEGERS:
        return _set_extremes(_draw_integers(clean_low, clean_high, dtype, shape, generator), recorded)
    if not dtype.is_floating_point:
        raise Unbuildable(f"{dtype} is not supported for random inputs. SKIP.")
    return _set_extremes(_draw_floats(recorded, "Max_except_inf_nan" in leaf, dtype, shape, generator), recorded)


def _draw_integers(
    low: float, high: float, dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    check_finite_range("an integer", low, high)
    least, most = _clamp_integer(low, dtype), _clamp_integer(max(low, high), dtype)
    if least == most:
        return torch.full(shape, least, dtype=dtype)
    top = min(most + 1, torch.iinfo(torch.int64).max)  # randint excludes its upper bound
    return torch.randint(least, top, shape, generator=generator).to(dtype)


def _clamp_integer(value: float, dtype: torch.dtype) -> int:
    """Return the nearest whole number that the dtype can hold."""
    info = torch.iinfo(dtype)
    return min(max(int(value), info.min), info.max)


def _draw_floats(
    recorded: Range, is_cleaned: bool, dtype: torch.dtype, shape: tuple[int, ...], generator: torch.Generator
) -> torch.Tensor:
    low, high = recorded.clean_low, recorded.clean_high
    if math.isnan(high):
        return torch.full(shape, math.nan, dtype=dtype)
    if math.isinf(high) and math.isinf(recorded.high) and (is_cleaned or high == low):
        return torch.full(shape, high, dtype=torch.float32).to(dtype)  # no element was finite
    info = torch.finfo(dtype)
    least = min(max(float(low), info.min), info.max) if not math.isnan(low) else float(high)
    most = min(max(float(high), info.min), info.max)
    wide = torch.float64 if dtype is torch.float64 or most - least > torch.finfo(torch.float32).max else torch.float32
    drawn = torch.rand(shape, generator=generator, dtype=wide)
    if math.isinf(most - least):  # the difference exceeds float64
        return (drawn * most + (1 - drawn) * least).to(dtype)
    return drawn.mul_(most - least).add_(least).clamp_(least, most).to(dtype)


def _set_extremes(tensor: torch.Tensor, recorded: Range) -> torch.Tensor:
    """Put the recorded extremes, inf and nan into the first, second and last element.

    The positions are those of docs/standards.md#inputs.
    """
    if tensor.is_floating_point() and tensor.element_size() == 1:  # torch 2.1 writes no elements of these
        return _set_extremes(tensor.float(), recorded).to(tensor.dtype)
    low, high, clean_low, clean_high = recorded
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
        flat[0] = clean_low if tensor.is_floating_point() else _clamp_integer(clean_low, tensor.dtype)
    if not math.isnan(clean_high):
        flat[-1] = clean_high if tensor.is_floating_point() else _clamp_integer(clean_high, tensor.dtype)
    if math.isinf(high):
        flat[-1] = high
    if math.isinf(low):
        flat[0] = low
    return tensor
