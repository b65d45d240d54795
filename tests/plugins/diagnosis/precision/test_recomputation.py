"""Matrix products that are computed again from their recorded inputs, against NumPy and torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_diagnosis.precision.precision_settings import Arrangement, find_arrangement, load_settings
from probe_diagnosis.precision.recomputation import find_formats, load_product, measure_rounding
from support.runs.answered import call, normal, record
from torch.nn import functional as F

from probe_core.flow.opening import open_run
from probe_core.plugins.manager import Manager


def rounded(values: Any, bits: int) -> Any:
    """Round to a number of significant bits, as the formats of products do."""
    mantissa, exponent = np.frexp(values.astype(float))
    return np.ldexp(np.round(np.ldexp(mantissa, bits)), exponent - bits)


def opened(directory: Path, key: str, *inputs: Any, out: Any, **keywords: Any) -> Any:
    return open_run(Manager(), record(directory, {key: call(*inputs, out=out, **keywords)}))


def linear(x: Any, w: Any, b: Any = 0.0) -> Any:
    return x @ w.swapaxes(-1, -2) + b


X, W, B = normal(5, 7, 96), normal(32, 96, seed=1), normal(32, seed=2)
CASES: dict[str, tuple[str, tuple[Any, ...], Any]] = {
    "linear": ("Functional.linear.0.forward", (X, W, B), lambda x, w, b: linear(x, w, b)),
    "linear without bias": ("Functional.linear.0.forward", (X, W), linear),
    "mint": ("Mint.nn.functional.linear.0.forward", (X, W), linear),
    "mm": ("Torch.mm.0.forward", (X[0], normal(96, 4)), lambda x, w: x @ w),
    "operator": ("Tensor.__matmul__.0.forward", (X, normal(96, 4)), lambda x, w: x @ w),
    "bmm": ("Torch.bmm.0.forward", (X, normal(5, 96, 9, seed=3)), lambda x, w: x @ w),
    "heads": (
        "Torch.matmul.0.forward",
        (normal(2, 3, 24, 64), normal(2, 3, 64, 25, seed=3)),
        lambda x, w: x @ w,
    ),
    "addmm": ("Torch.addmm.0.forward", (B, X[0], W.T), lambda b, x, w: x @ w + b),
    "baddbmm": ("Torch.baddbmm.0.forward", (normal(5, 7, 9), X, normal(5, 96, 9)), lambda b, x, w: x @ w + b),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("format", ["bfloat16", "TF32", "HF32"])
def test_the_rounding_of_a_product_is_measured(tmp_path: Path, name: str, format: str) -> None:
    key, inputs, compute = CASES[name]
    bits = load_settings().formats[format]
    is_added = find_arrangement(key) is Arrangement.ADDMM
    factors = {1, 2} if is_added else {0, 1}
    given = [rounded(value, bits) if place in factors else value for place, value in enumerate(inputs)]
    run = opened(tmp_path, key, *inputs, out=compute(*given).astype(np.float32))
    rounding = measure_rounding(run, key)
    assert rounding is not None and 0.75 < rounding * 2.0**bits < 1.25
    assert find_formats(rounding, load_settings().factors["tensor"]) == (format,)


@pytest.mark.parametrize("name", CASES)
def test_products_in_full_precision_round_no_input(tmp_path: Path, name: str) -> None:
    key, inputs, compute = CASES[name]
    run = opened(tmp_path, key, *inputs, out=compute(*inputs).astype(np.float32))
    rounding = measure_rounding(run, key)
    assert rounding is not None and rounding < 2.0**-20
    assert find_formats(rounding, load_settings().factors["statistics"]) == ()


CONVOLUTIONS: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 3, 9), (4, 3, 3), {}),
    ((2, 3, 9), (4, 3, 3), {"stride": 2, "padding": 1}),
    ((2, 3, 9, 8), (4, 3, 3, 2), {"stride": [2, 1], "padding": [1, 2], "dilation": [2, 3]}),
    ((1, 2, 6, 5, 7), (3, 2, 2, 3, 2), {"stride": [1, 2, 3], "padding": 1}),
]


@pytest.mark.parametrize(("source", "weight", "arguments"), CONVOLUTIONS)
@pytest.mark.parametrize("by_place", [False, True])
def test_convolutions_are_computed_as_torch_does(
    tmp_path: Path, source: Any, weight: Any, arguments: dict[str, Any], by_place: bool
) -> None:
    x, w, bias = normal(*source), normal(*weight, seed=1), normal(weight[0], seed=2)
    name = f"conv{len(source) - 2}d"
    out = getattr(F, name)(*map(torch.from_numpy, (x, w, bias)), **arguments).numpy()
    places = [arguments.get("stride", 1), arguments.get("padding", 0), arguments.get("dilation", 1), 1]
    given = (x, w, bias, *places) if by_place else (x, w, bias)
    key = f"Functional.{name}.0.forward"
    run = opened(tmp_path, key, *given, out=out, **({} if by_place else arguments))
    product = load_product(run, key)
    assert product is not None
    np.testing.assert_allclose(product.left @ product.right + product.added, product.result, atol=1e-4)
    rounding = measure_rounding(run, key)
    assert rounding is not None and rounding < 2.0**-20


def test_large_products_are_computed_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    limits = dataclasses.replace(load_settings(), multiplications=96 * 32 * 3)
    monkeypatch.setattr("probe_diagnosis.precision.recomputation.load_settings", lambda: limits)
    run = opened(tmp_path, "Functional.linear.0.forward", X, W, B, out=linear(X, W, B))
    product = load_product(run, "Functional.linear.0.forward")
    assert product is not None
    assert (product.left.shape, product.right.shape) == ((3, 96), (96, 32))
    np.testing.assert_allclose(product.left @ product.right + product.added, product.result, atol=1e-4)


@pytest.mark.parametrize(
    ("key", "inputs", "keywords"),
    [
        ("Functional.relu.0.forward", (X,), {}),
        ("Functional.linear.0.backward", (X, W), {}),
        ("Torch.einsum.0.forward", (X, W), {}),
        ("Torch.mm.0.forward", (X[0].astype(np.float16), W.T), {}),  # float16 is as precise as it can be
        ("Torch.addmm.0.forward", (B, X[0], W.T), {"beta": 0.5}),
        ("Torch.matmul.0.forward", (normal(2, 1, 4, 6), normal(3, 6, 5)), {}),  # broadcast
        ("Torch.matmul.0.forward", (normal(6), normal(6)), {}),
        ("Functional.conv2d.0.forward", (normal(1, 4, 5, 5), normal(4, 2, 3, 3)), {"groups": 2}),
        ("Functional.conv2d.0.forward", (normal(1, 4, 5, 5), normal(4, 4, 3, 3)), {"padding": "same"}),
        ("Functional.linear.0.forward", (X,), {}),
        ("Torch.mm.0.forward", (normal(3, 4), normal(8, 3)), {}),  # rows of batches were chosen
        ("Torch.mm.0.forward", (normal(2, 4), normal(4, 3)), {}),
        ("Functional.linear.0.forward", (normal(0, 4), normal(3, 4)), {}),
        ("Functional.linear.0.forward", (np.full((2, 4), np.nan, np.float32), normal(3, 4)), {}),
        ("Functional.linear.0.forward", (np.zeros((2, 4), np.float32), normal(3, 4)), {}),
    ],
)
def test_what_cannot_be_computed_again_is_unknown(
    tmp_path: Path, key: str, inputs: Any, keywords: dict[str, Any]
) -> None:
    run = opened(tmp_path, key, *inputs, out=normal(3, 3), **keywords)
    assert measure_rounding(run, key) is None


def test_a_call_that_is_not_recorded_is_unknown(tmp_path: Path) -> None:
    run = opened(tmp_path, "Torch.mm.0.forward", X[0], W.T, out=X[0] @ W.T)
    assert measure_rounding(run, "Torch.mm.1.forward") is None
    (tmp_path / "dump_tensor_data" / "Torch.mm.0.forward.input.0.npy").write_bytes(b"")
    assert measure_rounding(run, "Torch.mm.0.forward") is None


@pytest.mark.parametrize(("rounding", "names"), [(0.0, ()), (-1.0, ()), (float("nan"), ()), (1.0, ())])
def test_no_format_is_near(rounding: float, names: tuple[str, ...]) -> None:
    assert find_formats(rounding, 3.0) == names


def test_near_formats_are_all_named() -> None:
    assert find_formats(2.0**-11.5, 3.0) == ("TF32", "HF32")
