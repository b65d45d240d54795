"""Checks of the arguments of reference definitions, which raise a ValueError with one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def check(fits: bool, sentence: str) -> None:
    """Raise a ValueError with ``sentence`` unless ``fits`` is True."""
    if not fits:
        raise ValueError(sentence)


def check_broadcasts(tensor: Tensor, shape: Sequence[int], subject: str) -> None:
    """Raise a ValueError unless ``tensor``, whose name is ``subject``, can be broadcast to ``shape``."""
    try:
        fits = tuple(torch.broadcast_shapes(tensor.shape, tuple(shape))) == tuple(shape)
    except RuntimeError:
        fits = False
    check(fits, f"{subject} has shape {tuple(tensor.shape)}, which cannot be broadcast to {tuple(shape)}.")


def normalize_axis(tensor: Tensor, dim: int) -> int:
    """Return the axis ``dim`` of ``tensor`` as a non-negative number.

    Raises:
        ValueError: The tensor has no such axis.
    """
    check(-tensor.dim() <= dim < tensor.dim(), f"dim is {dim}, but the input has {tensor.dim()} dimensions.")
    return dim % tensor.dim()
