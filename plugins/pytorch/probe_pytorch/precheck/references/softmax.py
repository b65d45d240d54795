"""The definition of softmax with a scale and a mask (docs/standards.md#fused-operators)."""

from __future__ import annotations

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check_broadcasts

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
