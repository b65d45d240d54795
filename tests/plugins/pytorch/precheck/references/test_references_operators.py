"""Optimizers, layouts, rotary embedding, masked softmax and gating, held against formulas of their own."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from support.cases import every
from support.references.fused import F64, close, forward, gradients


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


# -- optimizers ----------------------------------------------------------------------------

SHAPE = (3, 5)
LR, DECAY, BETA1, BETA2, EPS = 0.05, 0.1, 0.9, 0.99, 1e-6


@pytest.mark.parametrize("amsgrad, maximize", [*itertools.product([False, True], repeat=2)])
def test_adam_w_is_a_step_of_torch(amsgrad: bool, maximize: bool) -> None:
    """Three steps of torch.optim.AdamW, each repeated by the definition from the state before it."""
    var = torch.randn(SHAPE, dtype=F64).requires_grad_()
    optimizer = torch.optim.AdamW([var], LR, (BETA1, BETA2), EPS, DECAY, amsgrad=amsgrad, maximize=maximize)
    m, v, largest = (torch.zeros(SHAPE, dtype=F64) for _ in range(3))
    for step in range(3):
        grad = torch.randn(SHAPE, dtype=F64) / (step + 1)
        ours = forward(
            "npu_apply_adam_w", BETA1**step, BETA2**step, LR, DECAY, BETA1, BETA2, EPS, grad, largest,
            amsgrad, maximize, out=(var.detach(), m, v),
        )  # fmt: skip
        var.grad = grad
        optimizer.step()
        state = optimizer.state[var]
        m, v = state["exp_avg"].clone(), state["exp_avg_sq"].clone()
        largest = state["max_exp_avg_sq"].clone() if amsgrad else largest
        for one, other in zip(ours, (var.detach(), m, v)):
            close(one, other)


def test_adam_w_takes_the_max_grad_norm_that_is_given() -> None:
    zeros = torch.zeros(2, dtype=F64)
    var, m, v = forward(
        "npu_apply_adam_w", 1.0, 1.0, 1.0, 0.0, 0.5, 0.75, 0.0, torch.tensor([1.0, 4.0], dtype=F64),
        torch.tensor([1.0, 1.0], dtype=F64), True, False, out=(zeros, zeros, zeros),
    )  # fmt: skip
    assert (m.tolist(), v.tolist()) == ([0.5, 2.0], [0.25, 4.0])
    assert var.tolist() == [-0.5, -1.0]  # denominators: √(1/0.25) and √(4/0.25); means: 1 and 4


def test_adam_w_where_a_power_is_one() -> None:
    """1 − β becomes eps, so that nothing is divided by 0."""
    one, zeros = torch.ones(1, dtype=F64), torch.zeros(1, dtype=F64)
    var, _, v = forward(
        "npu_apply_adam_w", 1.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.25, one, None, False, False, out=(zeros, one, one)
    )
    assert (v.tolist(), var.tolist()) == ([1.0], [-4.0 / (2 + 0.25)])


@pytest.mark.parametrize("nesterov", [False, True])
def test_adam(nesterov: bool) -> None:
    """ApplyAdam as TensorFlow's documentation writes it."""
    var, m, grad = torch.randn(3, *SHAPE, dtype=F64)
    v, step = torch.rand(SHAPE, dtype=F64), 4
    ours = forward(
        "npu_apply_adam",
        BETA1**step,
        BETA2**step,
        LR,
        BETA1,
        BETA2,
        EPS,
        grad,
        False,
        nesterov,
        out=(var, m, v),
    )
    g = grad.numpy()
    m1 = BETA1 * m.numpy() + (1 - BETA1) * g
    v1 = BETA2 * v.numpy() + (1 - BETA2) * g * g
    rate = LR * np.sqrt(1 - BETA2**step) / (1 - BETA1**step)
    mean = m1 * BETA1 + g * (1 - BETA1) if nesterov else m1
    for one, other in zip(ours, (var.numpy() - mean * rate / (np.sqrt(v1) + EPS), m1, v1)):
        close(one, other)


# -- layouts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, perm, new, first",
    [
        ((2, 3, 4), [2, 0, 1], [4, 6], True),
        ((2, 3, 4), [-1, 1, 0], [12, 2], True),
        ((4, 6), [1, 0, 2], [2, 2, 6], False),
        ((4, 6), [0, 2, 1, 3], (2, 2, 3, 2), False),
        ((24,), [0], [24], True),
    ],
)
def test_confusion_transpose(shape: tuple[int, ...], perm: list[int], new: Any, first: bool) -> None:
    """Forward, and the gradient, which puts every element back where it came from."""
    x = torch.randn(shape, dtype=F64)
    v = x.numpy()
    expected = v.transpose(perm).reshape(new) if first else v.reshape(new).transpose(perm)
    y = forward("npu_confusion_transpose", x, perm, new, first)
    close(y, expected)
    (back,) = gradients("npu_confusion_transpose", y, x, perm, new, first)
    close(back, x)


@pytest.mark.parametrize("dim, descending", [*itertools.product([-1, 0, 1], [False, True])])
def test_sort(dim: int, descending: bool) -> None:
    x = torch.randint(5, (4, 6, 3), dtype=torch.int32).to(F64)
    expected = np.sort(x.numpy(), axis=dim)
    expected = np.flip(expected, dim) if descending else expected
    assert np.array_equal(forward("npu_sort_v2", x, dim, descending), expected)
    assert np.array_equal(forward("npu_sort_v2", x, dim, descending, out=torch.empty(0)), expected)


@pytest.mark.parametrize("shape", [(5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("bias", [True, False])
def test_linear(shape: tuple[int, ...], bias: bool) -> None:
    x, weight = torch.randn(shape, dtype=F64), torch.randn(4, 5, dtype=F64)
    added = [torch.randn(4, dtype=F64)] if bias else []
    y = forward("npu_linear", x, weight, *added)
    close(y, x.numpy() @ weight.numpy().T + (added[0].numpy() if bias else 0))
    grad = torch.randn(y.shape, dtype=F64)
    rows = grad.numpy().reshape(-1, 4)
    dx, dweight, *dbias = gradients("npu_linear", grad, x, weight, *added)
    close(dx, grad.numpy() @ weight.numpy())
    close(dweight, rows.T @ x.numpy().reshape(-1, 5))
    if bias:
        close(dbias[0], rows.sum(0))


# -- rotary --------------------------------------------------------------------------------

FACTORS = [(1, 3, 1, 8), (1, 1, 3, 8), (2, 1, 1, 8), (2, 3, 3, 8), (3, 1, 8), (1, 1, 1, 8)]


def turned(x: Any, mode: str) -> Any:
    """Pair by pair, element by element."""
    result = np.empty_like(x)
    half = x.shape[-1] // 2
    for i in range(half):
        a, b = (i, i + half) if mode == "half" else (2 * i, 2 * i + 1)
        result[..., a], result[..., b] = -x[..., b], x[..., a]
    return result


@every("factor", FACTORS)
@every("mode", ["half", "interleave"])
def test_rotary_mul(factor: tuple[int, ...], mode: str) -> None:
    """Forward, and the guide's backward with the factors' gradients summed over the axes of length 1."""
    x, grad = torch.randn(2, 2, 3, 3, 8, dtype=F64)
    r1, r2 = torch.randn(2, *factor, dtype=F64)
    v, g = x.numpy(), grad.numpy()
    given = () if mode == "half" else (mode,)
    close(forward("npu_rotary_mul", x, r1, r2, *given), r1.numpy() * v + r2.numpy() * turned(v, mode))
    dx, dr1, dr2 = gradients("npu_rotary_mul", grad, x, r1, r2, *given)
    close(dx, r1.numpy() * g - turned(r2.numpy() * g, mode))  # the turn's transpose is its negative
    for ours, whole in ((dr1, v * g), (dr2, turned(v, mode) * g)):
        sizes = (1,) * (4 - len(factor)) + factor
        axes = tuple(axis for axis in range(4) if sizes[axis] == 1)
        close(ours, whole.sum(axes, keepdims=True).reshape(factor))


# -- masked softmax ------------------------------------------------------------------------


@pytest.mark.parametrize("mask_shape", [(2, 3, 4, 4), (2, 1, 4, 4), (1, 1, 4, 4), (4, 4)])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8])
def test_scaled_masked_softmax(mask_shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Forward and the guide's backward; one row is masked as a whole."""
    x, grad = torch.randn(2, 2, 3, 4, 4, dtype=F64) * 3
    mask = torch.rand(mask_shape) < 0.4
    mask[..., 2, :] = True
    hidden = np.broadcast_to(mask.numpy(), x.shape)
    e = np.where(hidden, 0, np.exp(x.numpy() * 0.3))
    y = np.where(hidden.all(-1, keepdims=True), 1 / 4, e / np.maximum(e.sum(-1, keepdims=True), 1e-300))
    close(forward("npu_scaled_masked_softmax", x, mask.to(dtype), 0.3), y)
    g = grad.numpy()
    leaf = x.clone().requires_grad_()
    forward("npu_scaled_masked_softmax", leaf, mask.to(dtype), 0.3).backward(grad)
    close(leaf.grad, np.where(hidden, 0, y * (g - (g * y).sum(-1, keepdims=True)) * 0.3))


def test_fixed_triangular_mask() -> None:
    x = torch.randn(2, 2, 4, 4, dtype=F64)
    ours = forward("npu_scaled_masked_softmax", x, torch.zeros(4, 4).bool(), 1.0, True)
    close(ours, torch.softmax(x + torch.full((4, 4), -torch.inf, dtype=F64).triu(1), -1))


# -- gating --------------------------------------------------------------------------------


@every("shape", [(5, 6), (2, 3, 6), (6,)])
@every("k", [1, 2, 6])
@every("ends", [False, True])
def test_moe_gating(shape: tuple[int, ...], k: int, ends: bool) -> None:
    """Whole numbers make ties, of which the first expert wins."""
    x = torch.randint(3, shape).to(F64)
    finished = (torch.rand(shape[:-1]) < 0.5) if ends else None
    values, experts, places = forward("npu_moe_gating_top_k_softmax", x, finished, k)
    v = x.numpy().reshape(-1, 6)
    rows = np.exp(v) / np.exp(v).sum(-1, keepdims=True)
    order = np.argsort(-v, axis=-1, kind="stable")[:, :k]
    close(values, np.take_along_axis(rows, order, -1).reshape(*shape[:-1], k))
    if finished is not None:
        order = np.where(finished.numpy().reshape(-1, 1), 6, order)
    assert np.array_equal(experts, order.reshape(*shape[:-1], k))
    expected = [[choice * len(rows) + row for choice in range(k)] for row in range(len(rows))]
    assert np.array_equal(places, np.reshape(expected, (*shape[:-1], k)))
    assert experts.dtype == places.dtype == torch.int32
