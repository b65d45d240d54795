"""Distances next to a reference in exact fractions, and values that need care."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from probe_check.checkpoint import measurement
from probe_check.checkpoint.measurement import Distance, measure_distance
from probe_check.checkpoint.opening import open_checkpoint
from support.runs.checkpoints import values


def distance(room: Path, first: torch.Tensor, second: torch.Tensor) -> Distance:
    torch.save({"a": first, "b": second}, room / "x.pt")
    tensors = open_checkpoint(room / "x.pt").tensors
    return measure_distance(tensors["a"], tensors["b"])


def root(value: Fraction) -> float:
    """Return the square root, also where the square is outside of the range of float64."""
    shift = 1 << 2200
    return math.isqrt(int(value * shift * shift)) / shift if value else 0.0


def reference(first: torch.Tensor, second: torch.Tensor) -> tuple[float, float]:
    a, b = ([Fraction(x) for x in t.to(torch.float64).flatten().tolist()] for t in (first, second))
    l2 = root(sum(((x - y) ** 2 for x, y in zip(a, b)), Fraction()))
    norms = sum((x * x for x in a), Fraction()), sum((y * y for y in b), Fraction())
    product = sum((x * y for x, y in zip(a, b)), Fraction())
    cosine = math.copysign(math.sqrt(product**2 / (norms[0] * norms[1])), 1 if product > 0 else -1)
    return l2, cosine


@pytest.mark.parametrize(
    "kind", ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "int64", "int8", "bool"]
)
@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_equals_the_exact_result(tmp_path: Path, kind: str, scale: float) -> None:
    first, second = (values(kind, side, (50,), scale) * 7 for side in ("target", "golden"))
    first, second = first.to(getattr(torch, kind)), second.to(getattr(torch, kind))
    l2, cosine = reference(first, second)
    result = distance(tmp_path, first, second)
    assert math.isclose(result.l2, l2, rel_tol=1e-13) and result.cosine is not None
    assert math.isclose(result.cosine, cosine, rel_tol=1e-14)


@pytest.mark.parametrize("factor", [1e-200, 1e200, 1e307])
def test_squares_do_not_leave_the_range(tmp_path: Path, factor: float) -> None:
    first, second = (values("wide", side, (9,)).double().div(4) * factor for side in ("target", "golden"))
    l2, cosine = reference(first, second)
    result = distance(tmp_path, first, second)
    assert result.cosine is not None
    assert math.isclose(result.l2, l2, rel_tol=1e-9) and math.isclose(result.cosine, cosine, rel_tol=1e-9)


def test_blocks_and_chunks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = values("blocks", "target", (300, 7)), values("blocks", "golden", (300, 7))
    whole = distance(tmp_path, first, second)
    monkeypatch.setattr(measurement, "BLOCK_ELEMENTS", 64)
    monkeypatch.setattr(measurement, "CHUNK_ELEMENTS", 10)
    parts = distance(tmp_path, first, second)
    assert math.isclose(whole.l2, parts.l2, rel_tol=1e-14) and whole.is_equal == parts.is_equal is False


def test_values_that_need_care(tmp_path: Path) -> None:
    nan, inf = float("nan"), float("inf")

    def of(a: list[float], b: list[float]) -> Distance:
        return distance(tmp_path, torch.tensor(a), torch.tensor(b))

    assert of([], []) == Distance(True, 0.0, 1.0, (0.0, 0.0))
    assert of([0.0], [0.0]).cosine == 1.0 and of([0.0], [1.0]).cosine is None
    assert of([-0.0, 1], [0.0, 1]).is_equal
    assert of([nan, 1], [nan, 1]).is_equal and math.isnan(of([nan, 1], [nan, 1]).l2)
    assert not of([nan, 1], [0, 1]).is_equal and not of([1, 2], [1, inf]).is_equal
    assert of([1, 2], [1, inf]).l2 == inf and math.isnan(of([inf], [inf]).l2)
    assert of([inf, 1], [inf, 1]).is_equal
    assert of([1, 2], [1, 2]) == Distance(True, 0.0, 1.0, (math.sqrt(5), math.sqrt(5)))


def test_types_that_differ_are_compared_by_value(tmp_path: Path) -> None:
    base = values("types", "golden", (20,)).to(torch.bfloat16)
    assert distance(tmp_path, base, base.float()).is_equal
    assert distance(tmp_path, torch.tensor([1, 2]), torch.tensor([1.0, 2.0])).is_equal
    assert not distance(tmp_path, torch.tensor([2**53 + 1]), torch.tensor([2**53])).is_equal


def test_complex_elements_are_pairs(tmp_path: Path) -> None:
    result = distance(tmp_path, torch.tensor([3 + 4j]), torch.tensor([0j]))
    assert result.l2 == 5.0 and result.cosine is None
    assert distance(tmp_path, torch.tensor([1j]), torch.tensor([1 + 0j])).cosine == 0.0
