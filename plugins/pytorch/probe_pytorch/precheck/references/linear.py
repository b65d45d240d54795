"""The definition of the linear layer (docs/standards.md#fused-operators)."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from probe_pytorch.precheck.references.checks import check


def npu_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ + b for ``x`` (…, in), ``weight`` (out, in) and ``bias`` (out,).

    Raises:
        ValueError: The shapes do not fit.
    """
    check(
        weight.dim() == 2 and x.dim() > 0 and x.shape[-1] == weight.shape[1],
        f"x of shape {tuple(x.shape)} does not fit weight of shape {tuple(weight.shape)}.",
    )
    check(
        bias is None or tuple(bias.shape) == (weight.shape[0],),
        f"bias does not have the {weight.shape[0]} elements of an output of weight.",
    )
    return functional.linear(x, weight, bias)
