"""Perturbations next to independent references in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from probe_watch.free_benchmark.pytorch_arguments import lay_out_like
from probe_watch.free_benchmark.pytorch_perturbations import (
    add_noise,
    flip_last_bit,
    raise_halves,
    swap_ends,
)
from probe_watch.free_benchmark.thresholds import load_thresholds
from support.cases import every

NOISE = load_thresholds().noise
SPECIAL = [0.0, -0.0, 1.0, -1.0, 1.2e-3, 2e-3, -0.05, 1e-7, 3e4, float("nan"), float("inf"), float("-inf")]
BITS = {
    torch.float16: np.uint16,
    torch.bfloat16: np.uint16,
    torch.float32: np.uint32,
    torch.float64: np.uint64,
}
TINY = {
    torch.float16: 2.0**-14,
    torch.bfloat16: 2.0**-126,
    torch.float32: 2.0**-126,
    torch.float64: 2.0**-1022,
}


def bits_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return the bits of a tensor as unsigned integers."""
    kind = BITS[tensor.dtype]
    signed = {2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.contiguous().view(signed).numpy().view(kind)


def round_to(values: np.ndarray[Any, Any], dtype: torch.dtype) -> np.ndarray[Any, Any]:
    """Return float64 values rounded to a dtype; bfloat16 by hand, to the nearest even."""
    if dtype != torch.bfloat16:
        kind = {torch.float16: np.float16, torch.float32: np.float32, torch.float64: np.float64}[dtype]
        with np.errstate(over="ignore"):
            return values.astype(kind).astype(np.float64)
    wide = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return np.where(np.isfinite(values), rounded, values).astype(np.float64)


@every("dtype", list(BITS))
def test_add_noise_adds_where_elements_are_large(dtype: torch.dtype) -> None:
    x = torch.tensor(SPECIAL, dtype=torch.float64).to(dtype)
    values, size = x.double().numpy(), NOISE[str(dtype).removeprefix("torch.")]
    expected = np.where(np.abs(values) > size**0.5, round_to(values + size, dtype), values)
    changed = add_noise(x, NOISE)
    assert changed is not None and changed.dtype == dtype
    np.testing.assert_array_equal(changed.double().numpy(), expected)


@every("dtype", list(BITS))
def test_flip_last_bit_flips_one_bit_of_normal_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor([*SPECIAL, TINY[dtype], TINY[dtype] / 2], dtype=torch.float64).to(dtype)
    changed = flip_last_bit(x)
    assert changed is not None and changed.dtype == dtype
    with np.errstate(invalid="ignore"):
        values = x.double().numpy()
        flips = (np.abs(values) > TINY[dtype]) & np.isfinite(values)
    np.testing.assert_array_equal(bits_of(changed) ^ bits_of(x), flips.astype(BITS[dtype]))


@every("x", [torch.zeros(0), torch.zeros(3), torch.arange(4), torch.tensor([True]), torch.ones(2, dtype=torch.cfloat)],
       ids=lambda x: str(x))  # fmt: skip
def test_nothing_is_changed_in_small_empty_and_other_tensors(x: torch.Tensor) -> None:
    assert add_noise(x, NOISE) is None
    assert flip_last_bit(x) is None


def test_noise_needs_an_element_above_its_square_root() -> None:
    assert add_noise(torch.tensor([5e-5, 1e-8]), NOISE) is None  # larger than the noise, not than its root
    assert add_noise(torch.tensor(2.0), NOISE) is not None


@every(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32, torch.bool, torch.cfloat],
)
@every("shape", [(2,), (5,), (2, 1), (1, 2), (3, 4), (2, 3, 4), (1, 2, 0)])
def test_swap_ends_swaps_two_parts_of_a_copy(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = torch.arange(24)[: int(np.prod(shape))].reshape(shape).to(dtype)
    before = x.clone()
    changed = swap_ends(x)
    values = x.float().numpy() if dtype == torch.bfloat16 else x.numpy()
    expected = values.copy()
    first, last = (0, -1) if len(shape) == 1 else ((0, 0), (-1, -1))
    expected[first], expected[last] = values[last].copy(), values[first].copy()
    assert changed is not None and changed.dtype == dtype and torch.equal(x, before)
    np.testing.assert_array_equal(changed.float().numpy() if dtype == torch.bfloat16 else changed.numpy(), expected)


@every("shape", [(), (0,), (1,), (1, 1), (0, 3), (3, 0), (1, 1, 5)])
def test_swap_ends_needs_two_parts(shape: tuple[int, ...]) -> None:
    assert swap_ends(torch.zeros(shape)) is None


def test_halves_are_raised_exactly_and_others_are_kept() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.tensor(SPECIAL).to(dtype)
        assert raise_halves(x).dtype == torch.float32
        np.testing.assert_array_equal(raise_halves(x).numpy(), x.float().numpy())
    for x in (torch.ones(2), torch.ones(2, dtype=torch.float64), torch.arange(3)):
        assert raise_halves(x) is x


@every("change", [swap_ends, flip_last_bit, lambda x: add_noise(x, NOISE)], ids=["swap", "bits", "noise"])
@every("strided", [
    torch.arange(1.0, 13).reshape(3, 4).t(), torch.arange(1.0, 25).reshape(4, 6)[:, ::2],
    torch.arange(1.0, 25).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last),
    torch.ones(1, 3).expand(4, 3),
], ids=lambda x: str(x.stride()))  # fmt: skip
def test_values_do_not_depend_on_strides(change: Any, strided: torch.Tensor) -> None:
    expected, changed = change(strided.contiguous()), change(strided)
    assert torch.equal(changed, expected)
    laid_out = lay_out_like(changed, strided)
    assert torch.equal(laid_out, expected)
    if strided.stride(0):
        assert laid_out.stride() == strided.stride()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_the_noise_is_documented(name: str) -> None:
    assert NOISE[name] == {"bfloat16": 1e-4, "float16": 1e-6, "float32": 1e-8, "float64": 1e-16}[name]
