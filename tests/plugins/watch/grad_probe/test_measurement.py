"""Statistics and signs of gradients, against sums of Python's own numbers."""

from __future__ import annotations

import itertools
import math
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from probe_watch.grad_probe.measurement import MeasuredGradient, measure_array
from probe_watch.grad_probe.pytorch import measure
from probe_watch.grad_probe.settings import GradSettings

NAN, INF = math.nan, math.inf
BOUNDS = (-1, 0, 0.5)
L0, L1, L2 = GradSettings("L0"), GradSettings("L1"), GradSettings("L2", bounds=BOUNDS)

CASES: dict[str, torch.Tensor] = {
    "plain": torch.tensor([1.0, -2.0, 0.0, -0.0, 0.5, 0.25]),
    "on the bounds": torch.tensor([-1.0, 0.0, 0.5, -1.0]),
    "matrix": torch.arange(-6.0, 6.0).reshape(3, 4) / 4,
    "strided": torch.arange(-6.0, 6.0).reshape(3, 4).t()[::2],
    "scalar": torch.tensor(-0.25),
    "empty": torch.zeros(0, 3),
    "nan": torch.tensor([1.0, NAN, 0.0]),
    "inf": torch.tensor([1.0, INF, -INF]),
    "tiny": torch.tensor([1e-30, -2e-30]),
    "subnormal": torch.tensor([1e-40, -2e-40]),
    "huge": torch.tensor([1e30, -2e30]),
    "fp16": torch.tensor([60000.0, 60000.0, -0.1], dtype=torch.float16),
    "bf16": torch.tensor([1.0, -2.0, 0.1], dtype=torch.bfloat16),
    "fp64": torch.tensor([0.1, -1e300, 0.7], dtype=torch.float64),
    "fp8": torch.tensor([1.0, -2.0, 0.5]).to(torch.float8_e4m3fn),
    "complex": torch.tensor([1.0 - 2.0j, 0.25 + 0.0j]),
    "conjugate": torch.tensor([1.0 - 2.0j]).conj(),
    "integer": torch.tensor([1, -2, 0]),
    "boolean": torch.tensor([True, False]),
}


def values(tensor: torch.Tensor) -> list[float]:
    if tensor.is_complex():
        return [part for value in tensor.reshape(-1).tolist() for part in (value.real, value.imag)]
    return [float(value) for value in tensor.to(torch.float64).reshape(-1).tolist()]


def check(measured: MeasuredGradient, tensor: torch.Tensor) -> None:
    """Compare with sums of Python's own numbers."""
    numbers, statistics = values(tensor), measured.statistics
    shape = (*tensor.shape, 2) if tensor.is_complex() else tuple(tensor.shape)
    assert statistics.shape == shape
    has_nan = any(map(math.isnan, numbers))
    for name, function in (("maximum", max), ("minimum", min)):
        value = getattr(statistics, name)
        assert value is None if not numbers else math.isnan(value) if has_nan else value == function(numbers)
    norm = NAN if has_nan else math.hypot(*numbers)
    assert (math.isnan(statistics.norm) and has_nan) or math.isclose(statistics.norm, norm, rel_tol=1e-6)
    assert measured.is_positive is not None and measured.is_positive.dtype == np.bool_
    assert measured.is_positive.shape == shape
    assert measured.is_positive.reshape(-1).tolist() == [number > 0 for number in numbers]
    edges = [-INF, *BOUNDS, INF]
    counts = [sum(low < n <= high for n in numbers) for low, high in itertools.pairwise(edges)]
    counts[0] += sum(n == -INF for n in numbers)
    total = len(numbers) or 1
    assert statistics.interval_shares == tuple(count / total for count in counts)
    assert statistics.zero_share == sum(n == 0 for n in numbers) / total


@pytest.mark.parametrize("name", CASES)
def test_torch(name: str) -> None:
    check(measure(CASES[name], L2), CASES[name])


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("bf16", "fp8")])
def test_numpy(name: str) -> None:
    check(measure_array(CASES[name].resolve_conj().numpy(), L2), CASES[name])


@pytest.mark.parametrize("name", CASES)
def test_the_checksum_is_of_float32(name: str) -> None:
    tensor = CASES[name]
    with np.errstate(over="ignore"):
        expected = f"{zlib.crc32(np.array(values(tensor), np.float32).tobytes()):08x}"
    assert measure(tensor, L0).statistics.checksum == expected
    if name not in ("bf16", "fp8"):
        assert measure_array(tensor.resolve_conj().numpy(), L0).statistics.checksum == expected


def test_only_what_the_level_asks_for_is_measured() -> None:
    for function, value in ((measure, CASES["plain"]), (measure_array, CASES["plain"].numpy())):
        plain: Any = function
        assert plain(value, L0).is_positive is None and not plain(value, L0).statistics.interval_shares
        assert plain(value, L1).is_positive is not None and plain(value, L1).statistics.zero_share is None
        assert not plain(value, L1).statistics.checksum


def test_no_bounds_make_no_intervals() -> None:
    settings = GradSettings("L2", bounds=())
    for statistics in (
        measure(CASES["plain"], settings).statistics,
        measure_array(CASES["plain"].numpy(), settings).statistics,
    ):
        assert statistics.interval_shares == () and statistics.zero_share == 2 / 6


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_a_sparse_gradient_is_measured_as_the_dense_one() -> None:
    sparse = torch.sparse_coo_tensor([[1, 1, 3]], [2.0, -3.0, 4.0], (5,))
    check(measure(sparse, L2), sparse.to_dense())


def test_a_gradient_of_a_graph_is_measured_and_unchanged() -> None:
    gradient = torch.tensor([1.0, -2.0], requires_grad=True) * 2
    before = gradient.detach().clone()
    check(measure(gradient, L2), gradient.detach())
    assert torch.equal(gradient.detach(), before) and gradient.requires_grad
