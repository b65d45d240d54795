"""Definitions of operators that move elements (docs/standards.md#fused-operators)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from probe_pytorch.precheck.references.checks import check, normalize_axis


def npu_confusion_transpose(x: Tensor, perm: Sequence[int], shape: Sequence[int], transpose_first: bool) -> Tensor:
    """Return ``x`` permuted and then reshaped (``transpose_first``), or reshaped and then permuted.

    The gradient has the shape of ``x``. In msprobe 8.3 it has the shape ``shape`` and, with
    ``transpose_first``, the two steps are undone in the wrong order.

    Raises:
        ValueError: ``perm`` is no permutation of the axes, or ``shape`` has another number of elements.
    """
    sizes = tuple(shape)
    check(
        sizes.count(-1) == 1 or math.prod(sizes) == x.numel(),
        f"shape is {sizes}, but x has {x.numel()} elements.",
    )
    axes = x.dim() if transpose_first else len(sizes)
    check(
        sorted(axis % axes if axes else axis for axis in perm) == list(range(axes)),
        f"perm is {tuple(perm)}, which is no permutation of {axes} axes.",
    )
    if transpose_first:
        return x.permute(tuple(perm)).reshape(sizes)
    return x.reshape(sizes).permute(tuple(perm))


def npu_sort_v2(x: Tensor, dim: int = -1, descending: bool = False, *, out: Tensor | None = None) -> Tensor:
    """Return the values of ``x`` sorted along ``dim``, without their places; ``out`` is not changed.

    Raises:
        ValueError: There is no such axis.
    """
    return x.sort(normalize_axis(x, dim), descending=descending).values
