"""Definitions of activations: fast_gelu, mish, swiglu (docs/standards.md#fused-operators)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from probe_pytorch.precheck.references.checks import check, normalize_axis

GELU_SLOPE = 1.702
"""The slope of the sigmoid that approximates the normal distribution in fast_gelu."""


def npu_fast_gelu(x: Tensor) -> Tensor:
    """Return x·σ(1.702 x) of each element.

    msprobe 8.3 writes it as x·exp(0.851 (x − |x|)) / (1 + exp(−1.702 |x|)), which is the same function with
    the same derivative; no finite x overflows in either form.
    """
    return x * torch.sigmoid(GELU_SLOPE * x)


def npu_mish(x: Tensor) -> Tensor:
    """Return x·tanh(softplus(x)) of each element."""
    return functional.mish(x)


def npu_swiglu(x: Tensor, dim: int = -1) -> Tensor:
    """Return silu(a)·b, where a and b are the halves of ``x`` along ``dim``.

    Unlike msprobe 8.3, nothing is rounded to 16 bits between the steps, forward or backward.

    Raises:
        ValueError: There is no such axis, or its length is odd.
    """
    axis = normalize_axis(x, dim)
    check(x.shape[axis] % 2 == 0, f"the length of dim {dim} is {x.shape[axis]}, which is odd.")
    gate, linear = x.chunk(2, axis)
    return functional.silu(gate) * linear
