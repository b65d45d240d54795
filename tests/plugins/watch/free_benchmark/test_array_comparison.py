"""Comparisons in NumPy next to those in torch, which have their own references, and worked examples."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from probe_watch.free_benchmark import array_comparison, pytorch_comparison
from probe_watch.free_benchmark.array_comparison import compute_norm_ratio, is_close_to_cpu
from probe_watch.free_benchmark.outcome import OutputDifference
from probe_watch.free_benchmark.outputs import NotComparable
from probe_watch.free_benchmark.settings import Stage
from probe_watch.free_benchmark.thresholds import load_thresholds
from support.cases import every

NAN, INF = float("nan"), float("inf")
THRESHOLDS = load_thresholds()
DTYPES = ("float16", "bfloat16", "float32", "float64")


def as_array(tensor: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    """Return the values as the framework's part passes them: bfloat16 as float32."""
    return (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()


def pair(dtype: str, spread: float, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return two tensors that differ by a relative error."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(40, 5, generator=generator, dtype=torch.float64) * 3
    second = first * (1 + spread * torch.randn(40, 5, generator=generator, dtype=torch.float64))
    kind = getattr(torch, dtype)
    return first.to(kind), second.to(kind)


@every("dtype", DTYPES)
@every("spread", [0.0, 1e-5, 1e-3, 0.3])
def test_the_ratio_is_that_of_torch(dtype: str, spread: float) -> None:
    floor = THRESHOLDS.get_floor(Stage.FORWARD, dtype)
    for seed in range(3):
        first, second = pair(dtype, spread, seed)
        expected = pytorch_comparison.compute_norm_ratio(first, second, floor)
        assert compute_norm_ratio(as_array(first), as_array(second), floor, dtype) == expected


@every("dtype", DTYPES)
@every(
    "first, second",
    [
        ([NAN, 1.0], [NAN, 1.0]), ([NAN, 1.0], [1.0, 1.0]), ([INF, -INF], [INF, -INF]), ([INF], [-INF]),
        ([0.0, -0.0], [-0.0, 0.0]), ([1.0, -1.0], [1.0, 1.0]), ([], []), ([0.0], [1e-9]), ([NAN, 2.0], [NAN, -2.0]),
    ],
)  # fmt: skip
def test_the_ratio_of_special_values_is_that_of_torch(dtype: str, first: list[float], second: list[float]) -> None:
    floor = THRESHOLDS.get_floor(Stage.FORWARD, dtype)
    tensors = [torch.tensor(values, dtype=getattr(torch, dtype)) for values in (first, second)]
    arrays = [as_array(tensor) for tensor in tensors]
    assert compute_norm_ratio(arrays[0], arrays[1], floor, dtype) == pytorch_comparison.compute_norm_ratio(
        *tensors, floor
    )


def test_the_ratio_of_other_kinds() -> None:
    large = np.array([2**40, -(2**40), 70_000], np.int64)  # products that exceed int64 and int32
    assert compute_norm_ratio(large, large, 1e-4, "int64") == 1.0
    assert compute_norm_ratio(large.astype(np.int32), large.astype(np.int32), 1e-4, "int32") == 1.0
    assert compute_norm_ratio(np.array([2, 3]), np.array([2, 6]), 1e-4, "int64") == 2.0
    assert compute_norm_ratio(np.array([True, False]), np.array([True, False]), 1e-4, "bool") == 1.0
    assert compute_norm_ratio(np.array([True]), np.array([False]), 1e-4, "bool") == 1e4
    assert compute_norm_ratio(np.array(3.0), np.array(1.5), 1e-4, "float64") == 2.0
    values = np.array([1 + 2j], np.complex64)
    assert compute_norm_ratio(values, np.array([1 - 2j], np.complex64), 1e-4, "complex64") is OutputDifference.SIGN
    assert compute_norm_ratio(values, values * 2, 1e-4, "complex64") == 2.0
    strided = np.arange(1.0, 13.0, dtype=np.float32).reshape(3, 4).T
    assert compute_norm_ratio(strided, strided.copy(), 1e-4, "float32") == 1.0
    with pytest.raises(NotComparable):
        compute_norm_ratio(np.ones(2), np.ones(3), 1e-4, "float64")


def test_all_chunks_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_comparison, "CHUNK_BYTES", 64)
    first, second = np.ones(100, np.float32), np.ones(100, np.float32)
    second[3] = 2.0
    assert compute_norm_ratio(first, second, 1e-4, "float32") == 2.0


def test_zero_next_to_a_number_is_not_finite_only_without_a_floor() -> None:
    assert compute_norm_ratio(np.array([0.0]), np.array([1.0]), 1e-4, "float64") == pytest.approx(1e4)
    assert compute_norm_ratio(np.array([0.0]), np.array([1.0]), 0.0, "float64") == math.inf


@every(
    "actual, reference, agrees",
    [
        ([], [], True), ([1.0], [NAN], True), ([INF], [1.0], False), ([1.0], [INF], True), ([0.5], [0.5001], False),
        ([2.0], [2.00001], True), ([0.5] * 50, [0.49985] * 50, False), ([-0.0], [0.0], True),
    ],
)  # fmt: skip
def test_agreement_of_worked_examples(actual: list[float], reference: list[float], agrees: bool) -> None:
    limits = THRESHOLDS.get_cpu_limits("float32")
    assert is_close_to_cpu(np.array(actual, np.float32), np.array(reference), limits) is agrees


def test_shapes_that_differ_cannot_be_compared_with_the_cpu() -> None:
    with pytest.raises(NotComparable):
        is_close_to_cpu(np.ones(2), np.ones((2, 1)), THRESHOLDS.get_cpu_limits("float32"))
