"""The definition of the rotary position embedding (docs/standards.md#fused-operators)."""

from __future__ import annotations

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check, check_broadcasts


def npu_rotary_mul(x: Tensor, r1: Tensor, r2: Tensor, rotary_mode: str = "half") -> Tensor:
    """Return r1·x + r2·x', where x' is ``x`` with its pairs rotated by 90 degrees.

    A pair (a, b) becomes (−b, a). Its elements are half the last axis apart (``half``) or neighbors
    (``interleave``). The cosines ``r1`` and sines ``r2`` may have length 1 along any axis but the last; their
    gradients are summed over those axes.

    Raises:
        ValueError: The last axis is odd, r1 or r2 does not fit, or there is no such mode.
    """
    check(x.dim() > 0 and x.shape[-1] % 2 == 0, f"x has shape {tuple(x.shape)}, whose last axis is odd.")
    for name, factor in (("r1", r1), ("r2", r2)):
        check(factor.shape[-1:] == x.shape[-1:], f"the last axis of {name} is not as long as that of x.")
        check_broadcasts(factor, x.shape, name)
    return r1 * x + r2 * _rotate(x, rotary_mode)


def _rotate(x: Tensor, mode: str) -> Tensor:
    if mode == "half":
        first, second = x.chunk(2, -1)
        return torch.cat((-second, first), -1)
    check(mode == "interleave", f'rotary_mode is "{mode}", but must be "half" or "interleave".')
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
