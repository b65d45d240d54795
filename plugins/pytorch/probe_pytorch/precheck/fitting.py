"""Adaptation of random inputs to the requirements of an API, such as indices in range (``rules.yaml``)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from probe_precheck.fitting import RecordedArguments, find_indexed_size

from probe_pytorch.precheck.rules import rules


def fit_tensor(
    tensor: torch.Tensor,
    api: str,
    rule: Mapping[str, Any],
    call_arguments: RecordedArguments,
    generator: torch.Generator,
) -> torch.Tensor:
    """Return a random tensor changed so that the API accepts it.

    Args:
        tensor: The tensor, which may be overwritten.
        api: The name of the API.
        rule: The rule of the argument in ``rules.yaml``.
        call_arguments: The recorded arguments of the call.
        generator: The source of random numbers.
    """
    is_index = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    if "index_of" in rule and is_index:
        size, dim = find_indexed_size(rules, api, rule["index_of"], call_arguments)
        if size:
            if rule.get("unique") and dim is not None:
                return _draw_distinct_indices(tensor, size, dim, generator)
            return tensor.clamp_(0, size - 1)
    elif "below" in rule and is_index:
        limit = call_arguments.number(rule["below"]["argument"], rule["below"]["name"])
        return tensor.clamp_(0, limit - 1) if limit is not None and limit > 0 else tensor.clamp_(min=0)
    elif "sorted" in rule:
        return tensor.sort(-1).values if tensor.ndim else tensor
    elif "offsets_of" in rule and is_index and tensor.numel():
        shape = call_arguments.shape(rule["offsets_of"]["argument"], rule["offsets_of"]["name"])
        tensor = tensor.clamp_(0, math.prod(shape) if shape else 0).sort().values
        tensor[0] = 0
    elif "positive_definite" in rule and tensor.ndim >= 2 and tensor.is_floating_point():
        matrix = tensor.double()
        size = matrix.shape[-1]
        return (matrix @ matrix.mT + size * torch.eye(size, dtype=matrix.dtype)).to(tensor.dtype)
    elif "extremes" in rule and tensor.is_floating_point() and tensor.numel():
        low, high = tensor.min(), tensor.max()
        return torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, low, high)
    elif "probabilities" in rule and tensor.is_floating_point():
        return tensor.clamp_(0, 1)
    return tensor


def _draw_distinct_indices(tensor: torch.Tensor, size: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Return random indices that are distinct along ``dim``.

    If ``size`` is too small for distinct indices, the given indices are clamped to the valid range.
    """
    if tensor.ndim <= 1:
        dim = 0
    if not tensor.ndim or tensor.shape[dim] > size:
        return tensor.clamp_(0, size - 1)
    shape = [*tensor.shape]
    shape[dim] = size
    order = torch.rand(shape, generator=generator).argsort(dim)
    return order.narrow(dim, 0, tensor.shape[dim]).contiguous().to(tensor.dtype)
