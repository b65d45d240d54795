"""Definitions of the steps of optimizers (docs/standards.md#fused-operators).

``out`` holds the variable and its two moments before the step. The operators overwrite it by the new values;
the definitions do not change it and return the new values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check

Step = tuple[Tensor, Tensor, Tensor]
"""The variable, the mean of its gradients and the mean of their squares, after the step."""


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None = None,
    amsgrad: bool | None = False,
    maximize: bool | None = False,
    *,
    out: Sequence[Tensor],
) -> Step:
    """Return the result of one step of AdamW.

    ``beta1_power`` and ``beta2_power`` are the powers of the previous step. With amsgrad, the larger of
    ``max_grad_norm`` and the new second moment is used for each element; msprobe 8.3 uses random numbers in
    place of ``max_grad_norm``.

    Raises:
        ValueError: ``out`` is not three tensors of the shape of ``grad``, or amsgrad lacks ``max_grad_norm``.
    """
    var, m, v = _state(out, grad)
    slope = -grad if maximize else grad
    m = beta1 * m + (1 - beta1) * slope
    v = beta2 * v + (1 - beta2) * slope.square()
    largest = v
    if amsgrad:
        if max_grad_norm is None:
            raise ValueError("amsgrad needs max_grad_norm, which is not given.")
        largest = torch.maximum(max_grad_norm, v)
    denominator = (largest / _compute_bias_correction(beta2_power * beta2, epsilon)).sqrt() + epsilon
    mean = m / _compute_bias_correction(beta1_power * beta1, epsilon)
    return var * (1 - lr * weight_decay) - lr * mean / denominator, m, v


def npu_apply_adam(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    use_locking: bool | None = False,
    use_nesterov: bool | None = False,
    *,
    out: Sequence[Tensor],
) -> Step:
    """Return the result of one step of Adam.

    ``beta1_power`` and ``beta2_power`` are the powers of this step. ε is added to √v itself, not to
    √(v / (1 − β2ᵗ)), as in TensorFlow's ApplyAdam.

    Raises:
        ValueError: ``out`` is not three tensors of the shape of ``grad``.
    """
    var, m, v = _state(out, grad)
    m = m + (beta1 - 1) * (m - grad)
    v = v + (beta2 - 1) * (v - grad.square())
    rate = lr * math.sqrt(1 - beta2_power) / (1 - beta1_power)
    mean = beta1 * m + (1 - beta1) * grad if use_nesterov else m
    return var - rate * mean / (epsilon + v.sqrt()), m, v


def _state(out: Sequence[Tensor], grad: Tensor) -> Step:
    check(
        len(out) == 3 and all(tensor.shape == grad.shape for tensor in out),
        f"out must be (var, m, v), three tensors of the shape {tuple(grad.shape)} of grad.",
    )
    var, m, v = out
    return var, m, v


def _compute_bias_correction(power: float, epsilon: float) -> float:
    """Return 1 − ``power``, or ``epsilon`` if that is 0."""
    return 1 - power if power != 1 else epsilon
