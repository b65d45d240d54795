"""The operations of the monitor against an independent reference, and on special tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from probe_check.monitor.array_measure import measure_array
from probe_check.monitor.pytorch.measurement import BLOCK_ELEMENTS, measure, resolve
from probe_check.monitor.tasks import OPERATIONS

NAN, INF = math.nan, math.inf
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.uint8, torch.bool]


def figures(tensor: torch.Tensor, epsilon: float = 1e-8) -> dict[str, float]:
    measured = measure(tensor, OPERATIONS, epsilon)
    resolve([measured])
    return dict(zip(OPERATIONS, map(float, measured.values)))  # type: ignore[arg-type]


def reference(values: Any, epsilon: float = 1e-8) -> dict[str, float]:
    """Compute the figures with exact sums."""
    numbers = [float(value) for value in values]
    finite = all(map(math.isfinite, numbers))
    norm = math.sqrt(math.fsum(n * n for n in numbers)) if finite else sum(n * n for n in numbers) ** 0.5
    return {
        "norm": norm,
        "min": NAN if any(n != n for n in numbers) else min(numbers),
        "max": NAN if any(n != n for n in numbers) else max(numbers),
        "mean": (math.fsum(numbers) if finite else sum(numbers)) / len(numbers),
        "zeros": sum(abs(n) < epsilon for n in numbers) / len(numbers),
        "nans": float(sum(n != n for n in numbers)),
    }


def assert_figures(found: dict[str, float], expected: dict[str, float]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-13, abs=0, nan_ok=True), name


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_figures_of_all_dtypes_are_those_of_the_reference(dtype: torch.dtype) -> None:
    values = torch.tensor([[3.0, 0.0, 1.0], [7.5, 2.25, 0.0]]).to(dtype)
    expected = reference(values.double().flatten())
    assert_figures(figures(values), expected)
    if dtype is not torch.bfloat16:
        assert_figures(dict(zip(OPERATIONS, measure_array(values.numpy(), OPERATIONS, 1e-8))), expected)


@pytest.mark.parametrize(
    "values",
    [[1.0, NAN, -2.0], [INF, 1.0], [-INF, INF], [-0.0], [0.0, -0.0, 1e-9], [3e38, -3e38], [1e-40, 2e-30]],
    ids=str,
)
def test_special_values(values: list[float]) -> None:
    tensor = torch.tensor(values)
    expected = reference(tensor.double())
    assert_figures(figures(tensor), expected)
    assert_figures(dict(zip(OPERATIONS, measure_array(tensor.numpy(), OPERATIONS, 1e-8))), expected)


def test_norms_of_float64_do_not_leave_its_range() -> None:
    for scale in (1e200, 1e-200):
        tensor = torch.tensor([3.0, 4.0], dtype=torch.float64) * scale
        assert figures(tensor)["norm"] == pytest.approx(5 * scale, rel=1e-14)
        assert measure_array(tensor.numpy(), ("norm",), 0)[0] == pytest.approx(5 * scale, rel=1e-14)


def test_an_empty_tensor_has_a_norm_and_a_count_only() -> None:
    found = figures(torch.empty(0, 3))
    assert (found.pop("norm"), found.pop("nans")) == (0.0, 0.0)
    assert all(map(math.isnan, found.values()))
    assert all(math.isnan(value) or value == 0 for value in measure_array(np.empty(0, np.float32), OPERATIONS, 1e-8))


def test_a_scalar_a_strided_and_a_sparse_tensor() -> None:
    assert figures(torch.tensor(-2.5)) == reference([-2.5])
    matrix = torch.arange(12.0).reshape(3, 4)
    assert_figures(figures(matrix.T[1:]), reference(matrix.T[1:].flatten()))
    sparse = torch.tensor([[0.0, 2.0], [0.0, -1.0]])
    assert_figures(figures(sparse.to_sparse()), reference(sparse.flatten()))


def test_a_complex_tensor_is_measured_by_its_absolute_values() -> None:
    tensor = torch.tensor([3 + 4j, 0j])
    for found in (figures(tensor), dict(zip(OPERATIONS, measure_array(tensor.numpy(), OPERATIONS, 1e-8)))):
        assert (found["norm"], found["zeros"], found["nans"]) == (5.0, 0.5, 0.0)
        assert all(math.isnan(found[name]) for name in ("min", "max", "mean"))


def test_a_norm_of_several_blocks_is_summed_in_float64() -> None:
    count = 3 * BLOCK_ELEMENTS + 5
    tensor = torch.full((count,), 1 / 3)
    expected = math.sqrt(count * float(tensor[0]) ** 2)
    assert figures(tensor)["norm"] == pytest.approx(expected, rel=1e-12)


def test_measuring_needs_no_graph_and_keeps_none() -> None:
    tensor = torch.ones(3, requires_grad=True) * 2
    measured = measure(tensor, OPERATIONS, 1e-8)
    assert not any(isinstance(value, torch.Tensor) and value.requires_grad for value in measured.values)
    assert (measured.shape, measured.dtype) == ((3,), "torch.float32")
