"""Conversion of tensors and dtypes to float64, also within lists and dictionaries."""

from __future__ import annotations

from typing import Any, TypeGuard

import torch

WIDE_DTYPES = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}  # fmt: skip
"""The dtype that replaces each narrower one."""

ROUNDED_DTYPES = frozenset({torch.bfloat16, torch.float16})
"""Dtypes to which weights are rounded where a script converts a module to them."""


def is_narrow(value: object) -> TypeGuard[torch.Tensor]:
    """Return True for a tensor of a floating-point or complex dtype that is converted."""
    return isinstance(value, torch.Tensor) and value.dtype in WIDE_DTYPES


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in float64 or complex128, if it is of a narrower dtype."""
    return tensor.to(WIDE_DTYPES[tensor.dtype]) if is_narrow(tensor) else tensor


def widen_nested(value: Any) -> Any:
    """Return a value whose tensors are in float64; the value itself if there is nothing to convert."""
    if isinstance(value, torch.Tensor):
        return widen(value)
    if type(value) in (list, tuple):
        items = [widen_nested(item) for item in value]
        return type(value)(items) if any(a is not b for a, b in zip(items, value)) else value
    if type(value) is dict:
        named = {name: widen_nested(item) for name, item in value.items()}
        return named if any(named[name] is not item for name, item in value.items()) else value
    return value


def narrow_nested(value: Any, dtype: torch.dtype) -> Any:
    """Return a value whose floating-point tensors, and those in lists, are of a dtype."""
    if isinstance(value, (list, tuple)):
        return type(value)(narrow_nested(item, dtype) for item in value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex() != dtype.is_complex or not (value.is_floating_point() or value.is_complex()):
        return value
    return value.to(dtype)
