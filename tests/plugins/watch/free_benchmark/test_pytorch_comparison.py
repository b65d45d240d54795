"""Comparisons of two outputs next to independent references in NumPy, float64, and worked examples."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from probe_watch.free_benchmark import pytorch_comparison
from probe_watch.free_benchmark.outcome import OutputDifference
from probe_watch.free_benchmark.outputs import NotComparable, compare_outputs
from probe_watch.free_benchmark.pytorch_comparison import TorchComparison, compute_norm_ratio
from probe_watch.free_benchmark.settings import ChangeMode, Stage
from probe_watch.free_benchmark.thresholds import load_thresholds
from support.cases import every

NAN, INF = float("nan"), float("inf")
THRESHOLDS = load_thresholds()


def reference_ratio(a: torch.Tensor, b: torch.Tensor, floor: float) -> float | OutputDifference:
    """Return the ratio of finite tensors in float64."""
    x, y = a.double().numpy(), b.double().numpy()
    if (x * y).size and (x * y).min() < -(floor**2):
        return OutputDifference.SIGN
    x, y = np.maximum(np.abs(x), floor), np.maximum(np.abs(y), floor)
    return float(max((x / y).max(initial=1), (y / x).max(initial=1)))


@every(
    "dtype,error",
    [(torch.float16, 2e-3), (torch.bfloat16, 1.6e-2), (torch.float32, 2e-7), (torch.float64, 0)],
)
@every("shape", [(40,), (5, 8), (), (0,), (2, 3, 4)])
@every("floor", [1e-3, 1e-4])
def test_norm_ratio_equals_a_reference_in_float64(
    dtype: torch.dtype, error: float, shape: tuple[int, ...], floor: float
) -> None:
    generator = torch.Generator().manual_seed(1)
    a = torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
    b = (a.double() * (1 + 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64))).to(dtype)
    for second in (b, -b, b[..., :0] if shape else b):
        first = a[..., :0] if second.numel() == 0 and shape else a
        expected = reference_ratio(first, second, floor)
        ratio = compute_norm_ratio(first, second, floor)
        if isinstance(expected, OutputDifference):
            assert ratio is expected
        else:
            assert ratio == pytest.approx(expected, rel=error or 1e-15)


@every("a,b,expected", [
    ([1.0, 2.0], [1.0, 2.0], 1.0),
    ([1.0, 2.0], [1.0, 1.0], 2.0),
    ([1.0, 1.0], [1.0, 4.0], 4.0),
    ([0.0, -0.0], [-0.0, 0.0], 1.0),
    ([0.0], [0.5], 5000.0),
    ([1e-5], [-1e-5], 1.0),
    ([1.0], [-1.0], OutputDifference.SIGN),
    ([NAN, 1.0], [NAN, 2.0], 2.0),
    ([NAN, 1.0], [NAN, -2.0], OutputDifference.SIGN),
    ([INF, 1.0], [INF, 1.0], 1.0),
    ([INF], [-INF], OutputDifference.NOT_FINITE),
    ([NAN], [1.0], OutputDifference.NOT_FINITE),
    ([1.0], [INF], OutputDifference.NOT_FINITE),
    ([], [], 1.0),
])  # fmt: skip
def test_norm_ratio_of_worked_examples(a: list[float], b: list[float], expected: Any) -> None:
    ratio = compute_norm_ratio(torch.tensor(a), torch.tensor(b), 1e-4)
    assert ratio == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


def test_norm_ratio_is_the_largest_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = torch.ones(100), torch.ones(100)
    b[3] = 7.0  # in an early part, which the last one must not hide
    monkeypatch.setattr(pytorch_comparison, "CHUNK_BYTES", 64)
    assert compute_norm_ratio(a, b, 1e-4) == pytest.approx(7)


def test_norm_ratio_of_other_types() -> None:
    assert compute_norm_ratio(torch.tensor([1, 2]), torch.tensor([1, 4]), 1e-4) == 2
    assert compute_norm_ratio(torch.tensor([True, True]), torch.tensor([True, True]), 1e-4) == 1
    assert compute_norm_ratio(torch.tensor([1 + 2j]), torch.tensor([1 + 4j]), 1e-4) == 2
    assert compute_norm_ratio(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.0]).half(), 1e-3) == 1
    strided = torch.arange(1.0, 13).reshape(3, 4).t()
    assert compute_norm_ratio(strided, strided.contiguous(), 1e-4) == 1
    with pytest.raises(NotComparable):
        compute_norm_ratio(torch.zeros(2), torch.zeros(3), 1e-4)


@every(
    "dtype,limit",
    [("float16", 1.002), ("bfloat16", 1.004), ("float32", 1.0002), ("float64", 1.0002), ("int64", 1.0002)],
)
def test_limits_are_those_of_the_dtype(dtype: str, limit: float) -> None:
    assert THRESHOLDS.get_ratio_limit(ChangeMode.ADD_NOISE, dtype) == limit
    assert THRESHOLDS.get_ratio_limit(ChangeMode.NO_CHANGE, dtype) == 1.0
    root = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-8}.get(dtype, 1e-4)
    assert THRESHOLDS.get_floor(Stage.FORWARD, dtype) == pytest.approx(root)
    assert THRESHOLDS.get_floor(Stage.BACKWARD, dtype) == 1e-3


def test_a_ratio_at_the_limit_is_consistent() -> None:
    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert TorchComparison().compare_on_device(one, two, 1e-4, 2.0).consistent
    assert not TorchComparison().compare_on_device(one, two, 1e-4, 1.999).consistent
    outcome = TorchComparison().compare_on_device(one, -one, 1e-4, 9.0)
    assert (outcome.consistent, outcome.ratio, outcome.dtype, outcome.shape) == (
        False, None, "torch.float32", "torch.Size([1])",
    )  # fmt: skip


def reference_agreement(actual: torch.Tensor, reference: torch.Tensor, dtype: str) -> bool:
    """Return the agreement with the CPU by loops over Python numbers."""
    exponent = {"float16": -11, "bfloat16": -8}.get(dtype, -14)
    balance = 0.0
    pairs = list(zip(actual.double().reshape(-1).tolist(), reference.double().reshape(-1).tolist()))
    if any(not math.isfinite(g) for _, g in pairs):
        return True
    for a, g in pairs:
        if not math.isfinite(a):
            return False
        if abs(a) < 1:
            if abs(a - g) > 2.0**exponent:
                return False
        elif g == 0 or abs(a - g) / abs(g) > 2.0**exponent:
            return False
        balance += (a - g) / (abs(g) if abs(g) >= 1 else 1)
    return not pairs or abs(balance / len(pairs)) <= 1e-4


@every("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@every("scale", [0.0, 1e-6, 3e-5, 9e-5, 2e-4, 1e-3, 1e-2])
@every("shape", [(), (0,), (7,), (3, 5)])
def test_agreement_with_the_cpu_equals_a_reference(dtype: torch.dtype, scale: float, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(7)
    expected = torch.randn(shape, generator=generator, dtype=torch.float64) * 2
    actual = (expected + scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
    name = str(dtype).removeprefix("torch.")
    limits = THRESHOLDS.get_cpu_limits(name)
    assert TorchComparison().compare_with_cpu(actual, expected, limits).consistent is reference_agreement(
        actual, expected, name
    )


@every("actual,reference,agrees", [
    ([1.0, 2.0], [1.0, 2.0], True),
    ([0.0, 0.5], [-0.0, 0.5], True),
    ([0.00007], [0.0], False),
    ([0.00005, -0.00005], [0.0, 0.0], True),
    ([2.0, 2.0002], [2.0, 2.0], False),
    ([1.0], [0.0], False),
    ([NAN], [NAN], True),
    ([5.0], [INF], True),
    ([NAN], [1.0], False),
    ([INF], [1.0], False),
    ([], [], True),
])  # fmt: skip
def test_agreement_of_worked_examples(actual: list[float], reference: list[float], agrees: bool) -> None:
    limits = THRESHOLDS.get_cpu_limits("float32")
    assert (
        TorchComparison().compare_with_cpu(torch.tensor(actual), torch.tensor(reference), limits).consistent is agrees
    )


@every("dtype", [torch.int8, torch.int32, torch.int64])
def test_large_integers_keep_their_sign(dtype: torch.dtype) -> None:
    value = torch.tensor([torch.iinfo(dtype).max // 3 * 2, -3], dtype=dtype)
    assert compute_norm_ratio(value, value, 1e-4) == 1.0
    assert compute_norm_ratio(value, -value, 1e-4) is OutputDifference.SIGN


@every("sign", [1, -1])
def test_a_balance_of_either_sign_does_not_agree(sign: int) -> None:
    reference = torch.full((50,), 0.5)
    limits = THRESHOLDS.get_cpu_limits("float16")
    assert not TorchComparison().compare_with_cpu(reference + sign * 2e-4, reference, limits).consistent
    assert TorchComparison().compare_with_cpu(reference + sign * 5e-5, reference, limits).consistent


def test_outputs_of_all_types_are_compared() -> None:
    def compare(a: torch.Tensor, b: torch.Tensor) -> Any:
        return TorchComparison().compare_on_device(a, b, 1e-4, 1.0002)

    def consistent(original: Any, changed: Any) -> list[bool]:
        return [each.consistent for each in compare_outputs(original, changed, compare, THRESHOLDS, torch.Tensor)]

    one, two = torch.tensor([1.0]), torch.tensor([2.0])
    assert consistent(one, two) == [False]
    assert consistent((one, [one, two]), (one, [two, two])) == [True, False, True]
    assert [e.index for e in compare_outputs((one, one), (one, two), compare, THRESHOLDS, torch.Tensor)] == [
        0,
        1,
    ]
    named = torch.max(torch.tensor([[1.0, 2.0]]), 1), torch.max(torch.tensor([[2.0, 1.0]]), 1)
    assert consistent(*named) == [True]  # the values; their positions are not compared
    assert consistent(3, 3) == [True] and consistent(3, 4) == [False]
    assert consistent(1.0, 1.0 + 1e-9) == [True] and consistent(1.0, 1.1) == [False]
    assert consistent(0.0, 0.0) == [True] and consistent(NAN, NAN) == [True] and consistent(NAN, 1.0) == [False]
    assert consistent("a", "b") == [False] and consistent(None, None) == []
    for original, changed in [((one,), (one, two)), ([one], one), (object(), 1)]:
        with pytest.raises(NotComparable):
            consistent(original, changed)
