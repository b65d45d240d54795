"""Definitions of normalizations (docs/standards.md#fused-operators)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from probe_pytorch.precheck.references.checks import check


def npu_rms_norm(x: Tensor, gamma: Tensor, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return x·rstd·γ and rstd = (mean(x²) + ε)^(−1/2), with the mean over the last axes of ``x``.

    These are the axes of γ; rstd has length 1 along them. The default of ε is 1e-6, as in the operator's
    documentation (msprobe 8.3 uses 1e-5). The gradient of γ is summed to the shape of γ, as by the operator; in
    msprobe 8.3 it has the shape of ``x``.

    Raises:
        ValueError: The shape of ``x`` does not end with the shape of γ.
    """
    axes = gamma.dim()
    check(
        0 < axes <= x.dim() and x.shape[-axes:] == gamma.shape,
        f"gamma has the shape {tuple(gamma.shape)}; the shape {tuple(x.shape)} of x must end with it.",
    )
    rstd = torch.rsqrt(x.square().mean(tuple(range(-axes, 0)), keepdim=True) + epsilon)
    return x * rstd * gamma, rstd


def npu_layer_norm_eval(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Return (x − mean)·(var + eps)^(−1/2)·weight + bias, with mean and var over ``normalized_shape``.

    msprobe 8.3 ignores weight, bias and eps, so that it is right only for a weight of ones, a bias of zeros
    and an eps of 1e-5.

    Raises:
        ValueError: The shape of ``x`` does not end with ``normalized_shape``, or weight or bias has another
            shape.
    """
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    check(
        bool(shape) and tuple(x.shape[-len(shape) :]) == shape,
        f"normalized_shape is {shape}; the shape {tuple(x.shape)} of x must end with it.",
    )
    for name, tensor in (("weight", weight), ("bias", bias)):
        check(
            tensor is None or tuple(tensor.shape) == shape,
            f"{name} does not have the shape {shape} of normalized_shape.",
        )
    return functional.layer_norm(x, shape, weight, bias, eps)


def npu_group_norm_silu(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, group: int, eps: float = 1e-5
) -> tuple[Tensor, Tensor, Tensor]:
    """Return SiLU of the group norm of ``x`` (N, C, …), and mean and rstd of the groups, each (N, group).

    Raises:
        ValueError: C is not a multiple of ``group``, or weight or bias is not of shape (C,).
    """
    check(x.dim() >= 2, f"x has shape {tuple(x.shape)}, but needs the dimensions (N, C, …).")
    batch, channels = x.shape[:2]
    check(group > 0 and channels % group == 0, f"{channels} channels cannot be split into {group} groups.")
    groups = x.reshape(batch, group, -1)
    variance, mean = torch.var_mean(groups, dim=-1, correction=0)
    rstd = torch.rsqrt(variance + eps)
    y = ((groups - mean.unsqueeze(-1)) * rstd.unsqueeze(-1)).reshape(x.shape)
    if weight is not None:
        y = y * _expand_per_channel(weight, x, "weight")
    if bias is not None:
        y = y + _expand_per_channel(bias, x, "bias")
    return functional.silu(y), mean, rstd


def _expand_per_channel(tensor: Tensor, x: Tensor, name: str) -> Tensor:
    channels = x.shape[1]
    check(
        tuple(tensor.shape) == (channels,),
        f"{name} has shape {tuple(tensor.shape)}, but x has {channels} channels.",
    )
    return tensor.reshape(channels, *[1] * (x.dim() - 2))
