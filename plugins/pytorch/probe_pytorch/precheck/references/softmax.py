"""Softmax with a scale and a mask (spec: pre-check guide 6)."""

from __future__ import annotations

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check_broadcasts

MASKED = -10000.0
"""What masked scores are set to (spec: pre-check guide 6); a row that is masked as a whole is uniform."""


def npu_scaled_masked_softmax(
    x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """Softmax over the last axis of ``x``·``scale``, masked where ``mask`` is true.

    With ``fixed_triu_mask`` everything above the main diagonal is masked instead. No gradient goes through
    what is masked.

    Raises:
        ValueError: The mask cannot be broadcast to the shape of ``x``.
    """
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    check_broadcasts(mask, x.shape, "mask")
    return torch.softmax((x * scale).masked_fill(mask != 0, MASKED), -1)
