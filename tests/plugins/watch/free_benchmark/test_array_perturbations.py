"""Perturbations in NumPy next to those in torch, which have their own references."""

from __future__ import annotations

import numpy as np
import torch
from probe_watch.free_benchmark import pytorch_perturbations
from probe_watch.free_benchmark.array_perturbations import (
    add_noise,
    create_array_changer,
    flip_last_bit,
    round_to_bfloat16,
    swap_ends,
)
from probe_watch.free_benchmark.settings import ChangeMode
from probe_watch.free_benchmark.thresholds import load_thresholds
from support.cases import every

NOISE = load_thresholds().noise
DTYPES = ("float16", "bfloat16", "float32", "float64")
SPECIAL = [0.0, -0.0, 1.0, -1.5, 1e-3, 1e-5, 6e4, float("nan"), float("inf"), -float("inf"), 1e-40, 3.14159]


def values(dtype: str) -> torch.Tensor:
    random = torch.randn(30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), random]).to(getattr(torch, dtype))


def as_array(tensor: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


@every("dtype", DTYPES)
@every("mode", [ChangeMode.ADD_NOISE, ChangeMode.BIT_NOISE, ChangeMode.CHANGE_VALUE, ChangeMode.NO_CHANGE])
def test_changes_are_those_of_torch(dtype: str, mode: ChangeMode) -> None:
    change, reference = create_array_changer(mode, NOISE), pytorch_perturbations.create_changer(mode, NOISE)
    whole = values(dtype)
    for tensor in (
        whole,
        whole.reshape(6, 7),
        whole.reshape(6, 7).t(),
        whole[:1],
        whole[:0],
        whole[0],
        whole[4:6],
    ):
        changed, expected = change(as_array(tensor), dtype), reference(tensor)
        if expected is None:
            assert changed is None
        else:
            assert changed is not None and changed.dtype == as_array(expected).dtype
            np.testing.assert_array_equal(changed, as_array(expected))
            np.testing.assert_array_equal(np.signbit(changed), np.signbit(as_array(expected)))


def test_other_dtypes_are_not_changed() -> None:
    for array in (np.arange(3), np.array([True]), np.array([1j], np.complex64)):
        assert add_noise(array, str(array.dtype), NOISE) is None
        assert flip_last_bit(array, str(array.dtype)) is None


def test_the_input_is_not_overwritten() -> None:
    array = np.array([1.0, 2.0], np.float32)
    add_noise(array, "float32", NOISE), flip_last_bit(array, "float32"), swap_ends(array)
    assert array.tolist() == [1.0, 2.0]


def test_rounding_to_bfloat16_is_that_of_torch() -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    array = np.concatenate([bits, np.array([0x3F808000, 0x3F818000, 0x7F7FFFFF], np.uint32)]).view(np.float32)
    expected = torch.from_numpy(array.copy()).bfloat16().float().numpy()
    np.testing.assert_array_equal(round_to_bfloat16(array), expected)
