"""The definitions of the NPU's fused operators, held against formulas of their own in numpy and mpmath.

Here: all of them, activations and norms. The others: test_fused_operators.py, attention: test_fused_attention.py.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from probe_pytorch.precheck import references
from support.cases import every
from support.references.fused import CASES, F64, OPERATORS, Arguments, close, doubles, forward, gradients
from torch.nn import functional


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


# -- all of them ---------------------------------------------------------------------------


def test_every_operator_has_a_case() -> None:
    assert set(CASES) == set(OPERATORS)


def test_the_specs_need_no_torch() -> None:
    code = (
        "import sys; from probe_pytorch.precheck import references; found = references.load_reference_specs();"
        "print(len(found), 'torch' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == [str(len(CASES)), "False"]


def test_what_the_specs_say() -> None:
    for spec in references.load_reference_specs():
        assert (spec.api, spec.framework) == (f"NPU.{spec.name}", "pytorch")
        assert spec.summary and "\n" not in spec.summary
    several = {name for name, operator in OPERATORS.items() if operator.grad_output is not None}
    assert several == {
        "npu_fusion_attention", "npu_rms_norm", "npu_group_norm_silu", "npu_moe_gating_top_k_softmax",
    }  # fmt: skip
    assert {OPERATORS[name].grad_output for name in several} == {0}
    assert OPERATORS["npu_fusion_attention"].compare_outputs == (0,)
    assert OPERATORS["npu_rms_norm"].compare_outputs is None


@every("name", CASES)
def test_arguments_are_left_as_they_are_and_their_precision_is_kept(name: str) -> None:
    for dtype in (torch.float32, F64):
        arguments, keywords = CASES[name](dtype)
        held = [*arguments, *keywords.get("out", ())]
        before = [a.clone() if isinstance(a, torch.Tensor) else a for a in held]
        result = forward(name, *arguments, **keywords)
        first = result[0] if isinstance(result, tuple) else result
        assert first.dtype == (F64 if name == "npu_fusion_attention" else dtype)
        for was, now in zip(before, held):
            assert torch.equal(was, now) if isinstance(was, torch.Tensor) else was == now


@every("name", CASES)
def test_float32_agrees_with_float64(name: str) -> None:
    """The same values computed in both precisions."""
    narrow, keywords = CASES[name](torch.float32)
    wide, wide_keywords = doubles(narrow), {k: doubles(v) for k, v in keywords.items()}
    ours, theirs = forward(name, *narrow, **keywords), forward(name, *wide, **wide_keywords)
    for one, other in zip(*([r] if isinstance(r, torch.Tensor) else r for r in (ours, theirs))):
        np.testing.assert_allclose(one.double(), other.double(), rtol=2e-5, atol=2e-6)


@every("name", sorted(set(CASES) - {"npu_apply_adam", "npu_apply_adam_w"}))
def test_gradients_are_the_slopes(name: str) -> None:
    """Autograd through the definition against differences of its values."""
    arguments, keywords = CASES[name](F64)
    output = OPERATORS[name].grad_output
    floats = [i for i, a in enumerate(arguments) if isinstance(a, torch.Tensor) and a.is_floating_point()]

    def function(*tensors: torch.Tensor) -> torch.Tensor:
        filled = dict(zip(floats, tensors))
        result = forward(name, *(filled.get(i, a) for i, a in enumerate(arguments)), **keywords)
        return result if output is None else result[output]  # type: ignore[no-any-return]

    leaves = [arguments[i].clone().requires_grad_() for i in floats]
    assert torch.autograd.gradcheck(function, leaves, atol=1e-6, rtol=1e-5)


# -- arguments -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["self", "input", "x"])
def test_the_first_tensor_goes_by_three_names(name: str) -> None:
    x, gamma = torch.randn(3, 4, dtype=F64), torch.randn(4, dtype=F64)
    ours = OPERATORS["npu_rms_norm"].forward(**{name: x}, gamma=gamma)
    assert torch.equal(ours[0], forward("npu_rms_norm", x, gamma)[0])


X = torch.randn(2, 3, 4, 6)
BAD: list[tuple[str, Arguments, str]] = [
    ("npu_rms_norm", ((X,), {}), "gamma"),
    ("npu_rms_norm", ((X, torch.ones(5)), {}), r"gamma has the shape \(5,\)"),
    ("npu_rms_norm", ((X, torch.ones(6)), {"eps": 1.0}), "eps"),
    ("npu_layer_norm_eval", ((X, [5]), {}), r"normalized_shape is \(5,\)"),
    ("npu_layer_norm_eval", ((X, [6], torch.ones(4)), {}), "weight"),
    ("npu_group_norm_silu", ((X, None, None, 2), {}), "3 channels"),
    ("npu_group_norm_silu", ((X, torch.ones(2), None, 3), {}), "weight has shape"),
    ("npu_linear", ((X, torch.ones(2, 5)), {}), "does not fit weight"),
    ("npu_linear", ((X, torch.ones(2, 6), torch.ones(3)), {}), "bias"),
    ("npu_rotary_mul", ((X[..., :5], X, X), {}), "odd"),
    ("npu_rotary_mul", ((X, X[..., :1], X), {}), "last axis of r1"),
    ("npu_rotary_mul", ((X, X, X[:, :2]), {}), "r2 has shape"),
    ("npu_rotary_mul", ((X, X, X, "third"), {}), '"third"'),
    ("npu_swiglu", ((X, 1), {}), "3, which is odd"),
    ("npu_swiglu", ((X, 4), {}), "4 dimensions"),
    ("npu_sort_v2", ((X, -5), {}), "4 dimensions"),
    ("npu_scaled_masked_softmax", ((X, X[..., :3] > 0), {}), "mask has shape"),
    ("npu_moe_gating_top_k_softmax", ((X, None, 7), {}), "k is 7"),
    ("npu_moe_gating_top_k_softmax", ((X, torch.zeros(2, 3), 1), {}), "finished"),
    ("npu_confusion_transpose", ((X, [0, 2, 1, 3], [2, 71], True), {}), "144 elements"),
    ("npu_confusion_transpose", ((X, [0, 2, 2, 3], [144], True), {}), "no permutation"),
    ("npu_apply_adam", ((0.9, 0.9, 1, 0.9, 0.9, 0, X), {"out": (X, X)}), "var, m, v"),
    ("npu_apply_adam", ((1.0, 0.9, 1, 0.9, 0.9, 0, X), {"out": (X, X, X)}), "division by zero"),
    ("npu_apply_adam_w", ((1, 1, 1, 0, 0.9, 0.9, 0, X, None, True), {"out": (X, X, X)}), "max_grad_norm"),
    ("npu_mish", ((None,), {}), "cannot be computed"),
]  # fmt: skip


@every("name, arguments, problem", BAD)
def test_arguments_that_do_not_fit(name: str, arguments: Arguments, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        forward(name, *arguments[0], **arguments[1])
    assert name in str(caught.value) and "\n" not in str(caught.value)


# -- activations ---------------------------------------------------------------------------

EDGES = [0.0, -0.0, 1e-300, 1e-8, -1e-8, 0.5, -0.5, 3.0, -3.0, 30.0, -30.0, 1e4, -1e4, 1e300, -1e300]


def fast_gelu(x: Any) -> Any:
    """The guide's form, in as many digits as it takes."""
    return x * mpmath.exp(0.851 * (x - abs(x))) / (1 + mpmath.exp(-1.702 * abs(x)))


def fast_gelu_slope(x: Any) -> Any:
    """The guide's backward for a gradient of 1."""
    e = mpmath.exp(-1.702 * abs(x))
    return (e + 1.702 * x * e + mpmath.exp(1.702 * (x - abs(x)))) / (1 + e) ** 2


def mish(x: Any) -> Any:
    return x * mpmath.tanh(mpmath.log1p(mpmath.exp(x)))


@pytest.mark.parametrize("name, formula", [("npu_fast_gelu", fast_gelu), ("fast_gelu", fast_gelu), ("npu_mish", mish)])
def test_activations(name: str, formula: Callable[[Any], Any]) -> None:
    x = torch.tensor([*EDGES[:-2], *np.linspace(-20, 20, 81)], dtype=F64)
    with mpmath.workdps(50):
        close(forward(name, x), [float(formula(mpmath.mpf(v))) for v in x.tolist()])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_fast_gelu_of_large_numbers(dtype: torch.dtype) -> None:
    large = torch.finfo(dtype).max
    x = torch.tensor([large, -large, 1e30, -1e30, float("inf")], dtype=dtype, requires_grad=True)
    y = forward("npu_fast_gelu", x)
    assert y.tolist() == [large, 0, x[2].item(), 0, float("inf")]
    (grad,) = torch.autograd.grad(y[:4].sum(), x)
    assert grad[:4].tolist() == [1, 0, 1, 0]


def test_fast_gelu_backward() -> None:
    x = torch.tensor([*EDGES, *np.linspace(-9, 9, 37)], dtype=F64)
    (ours,) = gradients("npu_fast_gelu", torch.full_like(x, 2.5), x)
    with mpmath.workdps(50):
        close(ours, [2.5 * float(fast_gelu_slope(mpmath.mpf(v))) for v in x.tolist()])


@pytest.mark.parametrize("shape, dim", [((4,), -1), ((3, 8), -1), ((6, 3), 0), ((2, 4, 5), 1), ((2, 4, 5), -2)])
def test_swiglu(shape: tuple[int, ...], dim: int) -> None:
    x = torch.randn(shape, dtype=F64) * 4
    a, b = np.split(x.numpy(), 2, axis=dim)
    sigmoid = 1 / (1 + np.exp(-a))
    close(forward("npu_swiglu", x, dim), a * sigmoid * b)
    grad = torch.randn(a.shape, dtype=F64)
    slope = sigmoid + a * sigmoid * (1 - sigmoid)
    (ours,) = gradients("npu_swiglu", grad, x, dim)
    close(ours, np.concatenate([b * slope * grad.numpy(), grad.numpy() * a * sigmoid], axis=dim))


# -- norms ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shape, axes", [((5,), 1), ((3, 8), 1), ((2, 3, 4), 2), ((2, 3, 4), 3)])
@pytest.mark.parametrize("epsilon", [None, 0.5])
def test_rms_norm(shape: tuple[int, ...], axes: int, epsilon: float | None) -> None:
    x, gamma = torch.randn(shape, dtype=F64), torch.randn(shape[-axes:], dtype=F64)
    given = () if epsilon is None else (epsilon,)
    y, rstd = forward("npu_rms_norm", x, gamma, *given)
    if hasattr(functional, "rms_norm"):  # since torch 2.4
        close(y, functional.rms_norm(x, gamma.shape, gamma, epsilon or 1e-6))
    mean = np.square(x.numpy()).mean(tuple(range(-axes, 0)), keepdims=True)
    close(y, x.numpy() * gamma.numpy() / np.sqrt(mean + (epsilon or 1e-6)))
    close(rstd, 1 / np.sqrt(mean + (epsilon or 1e-6)))


def test_rms_norm_backward() -> None:
    """The guide's formula, with the gradient of gamma summed to its shape."""
    x, gamma, grad = (torch.randn(s, dtype=F64) for s in ((4, 3, 8), (8,), (4, 3, 8)))
    rstd = 1 / np.sqrt(np.square(x.numpy()).mean(-1, keepdims=True) + 1e-6)
    g, w, v = grad.numpy(), gamma.numpy(), x.numpy()
    mean = (g * v * w * rstd).mean(-1, keepdims=True)
    dx, dgamma = gradients("npu_rms_norm", grad, x, gamma, output=0)
    close(dx, (g * w - v * rstd * mean) * rstd)
    close(dgamma, (v * g * rstd).sum((0, 1)))


@pytest.mark.parametrize("normalized", [6, [6], (4, 6)])
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm_eval(normalized: Any, affine: bool) -> None:
    """Weight, bias and eps count."""
    shape = (6,) if normalized == 6 else tuple(normalized)
    x = torch.randn(3, 4, 6, dtype=F64)
    weight, bias = torch.randn(2, *shape, dtype=F64) if affine else (None, None)
    axes = tuple(range(-len(shape), 0))
    v = x.numpy()
    expected = (v - v.mean(axes, keepdims=True)) / np.sqrt(v.var(axes, keepdims=True) + 0.25)
    if weight is not None and bias is not None:
        expected = expected * weight.numpy() + bias.numpy()
    close(forward("npu_layer_norm_eval", x, normalized, weight, bias, 0.25), expected)


@pytest.mark.parametrize("shape, group", [((2, 6), 3), ((2, 6, 5), 1), ((3, 4, 2, 5), 2), ((1, 4, 3, 2, 2), 4)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm_silu(shape: tuple[int, ...], group: int, affine: bool) -> None:
    x = torch.randn(shape, dtype=F64) + 3
    weight, bias = torch.randn(2, shape[1], dtype=F64) if affine else (None, None)
    y, mean, rstd = forward("npu_group_norm_silu", x, weight, bias, group, 1e-3)
    close(y, functional.silu(functional.group_norm(x, group, weight, bias, 1e-3)))
    groups = x.numpy().reshape(shape[0], group, -1)
    close(mean, groups.mean(-1))
    close(rstd, 1 / np.sqrt(groups.var(-1) + 1e-3))
