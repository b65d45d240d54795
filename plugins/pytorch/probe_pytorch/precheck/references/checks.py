"""Checks of the arguments of a definition; what does not fit is a ValueError of one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check(fits: bool, sentence: str) -> None:
    """Raise ValueError with ``sentence`` unless the arguments fit."""
    if not fits:
        raise ValueError(sentence)


def check_broadcasts(tensor: Tensor, shape: Sequence[int], what: str) -> None:
    """Raise ValueError unless ``tensor``, called ``what``, can be broadcast to ``shape``."""
    try:
        fits = tuple(torch.broadcast_shapes(tensor.shape, tuple(shape))) == tuple(shape)
    except RuntimeError:
        fits = False
    check(fits, f"{what} has shape {tuple(tensor.shape)}, which cannot be broadcast to {tuple(shape)}.")


def axis_of(tensor: Tensor, dim: int) -> int:
    """The axis ``dim`` of ``tensor``, counted from its front.

    Raises:
        ValueError: It has no such axis.
    """
    check(-tensor.dim() <= dim < tensor.dim(), f"dim is {dim}, but the input has {tensor.dim()} dimensions.")
    return dim % tensor.dim()
