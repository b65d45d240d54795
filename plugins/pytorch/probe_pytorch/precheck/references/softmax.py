"""The definition of softmax with a scale and a mask (docs/standards.md#fused-operators)."""

from __future__ import annotations

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check, check_broadcasts

MASKED = -10000.0
"""The value of masked scores; a row that is masked completely becomes uniform."""


def npu_scaled_masked_softmax(x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False) -> Tensor:
    """Return softmax(``x``·``scale``) over the last axis, with the elements masked where ``mask`` is true.

    With ``fixed_triu_mask``, everything above the main diagonal is masked instead. Masked elements have no
    gradient.

    Raises:
        ValueError: The mask cannot be broadcast to the shape of ``x``.
    """
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    check_broadcasts(mask, x.shape, "mask")
    return torch.softmax((x * scale).masked_fill(mask != 0, MASKED), -1)


# -- the definition of the gate in a mixture of experts (docs/standards.md#fused-operators) ---------


def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the ``k`` largest probabilities of each row of ``x``, their experts and their places.

    Among equal probabilities the expert with the lower number comes first. Probabilities that are equal in 16
    or 32 bits may differ in this higher precision; the experts may then differ from the operator's.

    Args:
        x: The scores, of shape (…, experts).
        finished: A mask of shape (…,); the expert of a finished row is replaced by the number of experts.
        k: Number of experts to choose.

    Returns:
        Three tensors of shape (…, k): probabilities, experts (int32) and places (int32), which count 0, 1, 2,
        … down the rows for each choice.

    Raises:
        ValueError: ``k`` is not from 1 to the number of experts, or ``finished`` does not fit the rows.
    """
    check(x.dim() > 0, "x is a scalar, but needs an axis of experts.")
    experts = x.shape[-1]
    check(0 < k <= experts, f"k is {k}, but there are {experts} experts.")
    values, order = torch.sort(torch.softmax(x, -1), stable=True, dim=-1, descending=True)
    chosen = order[..., :k].to(torch.int32)
    if finished is not None:
        check(
            finished.shape == x.shape[:-1],
            f"finished has shape {tuple(finished.shape)}, but the rows of x have {tuple(x.shape[:-1])}.",
        )
        chosen = chosen.masked_fill((finished != 0).unsqueeze(-1), experts)
    rows = x.shape[:-1].numel()
    places = torch.arange(rows * k, dtype=torch.int32, device=x.device).reshape(k, rows).T
    return values[..., :k], chosen, places.reshape(chosen.shape)
