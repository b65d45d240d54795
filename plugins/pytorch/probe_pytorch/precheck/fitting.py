"""Random inputs that an API takes: indices within range, sorted boundaries, and so on (``rules.yaml``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from probe_pytorch.precheck.rules import rules


class Given:
    """The recorded arguments of a call: descriptions, by position or by keyword."""

    def __init__(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        self._positional = positional
        self._keywords = keywords

    def shape(self, position: int, name: str) -> list[int] | None:
        """The shape of a tensor argument."""
        found = self._find(position, name)
        return found["shape"] if isinstance(found, Mapping) and isinstance(found.get("shape"), list) else None

    def number(self, position: int | None, name: str, default: int | None = None) -> int | None:
        """A whole number that was given."""
        found = self._find(position, name)
        value = found.get("value") if isinstance(found, Mapping) else found
        return value if type(value) is int else default

    def _find(self, position: int | None, name: str) -> Any:
        if position is not None and position < len(self._positional):
            return self._positional[position]
        found = self._keywords.get(name)
        return self._keywords.get("self") if found is None and name == "input" else found


def rule_for(api: str, place: int | str) -> Mapping[str, Any] | None:
    """The rule of the argument at a position, or of a keyword; None where there is none."""
    by_position: Mapping[int, Mapping[str, Any]] = rules("inputs").get(api, {})
    if isinstance(place, int):
        return by_position.get(place)
    return next((rule for rule in by_position.values() if rule["name"] == place), None)


def fitted(
    tensor: torch.Tensor, api: str, rule: Mapping[str, Any], given: Given, generator: torch.Generator
) -> torch.Tensor:
    """``tensor``, changed so that the API takes it; as it is where nothing is known or nothing is wrong."""
    is_index = not tensor.is_floating_point() and tensor.dtype is not torch.bool
    if "index_of" in rule and is_index:
        size, dim = _size(api, rule["index_of"], given)
        if size:
            if rule.get("unique") and dim is not None:
                return _without_repeats(tensor, size, dim, generator)
            return tensor.clamp_(0, size - 1)
    elif "below" in rule and is_index:
        limit = given.number(rule["below"]["argument"], rule["below"]["name"])
        return tensor.clamp_(0, limit - 1) if limit is not None and limit > 0 else tensor.clamp_(min=0)
    elif "sorted" in rule:
        return tensor.sort(-1).values if tensor.ndim else tensor
    elif "offsets_of" in rule and is_index and tensor.numel():
        shape = given.shape(rule["offsets_of"]["argument"], rule["offsets_of"]["name"])
        tensor = tensor.clamp_(0, math.prod(shape) if shape else 0).sort().values
        tensor[0] = 0
    elif "positive_definite" in rule and tensor.ndim >= 2 and tensor.is_floating_point():
        wide = tensor.double()
        return (wide @ wide.mT + tensor.shape[-1] * torch.eye(tensor.shape[-1], dtype=wide.dtype)).to(
            tensor.dtype
        )
    elif "extremes" in rule and tensor.is_floating_point() and tensor.numel():
        low, high = tensor.min(), tensor.max()
        return torch.where(torch.rand(tensor.shape, generator=generator) < 0.5, low, high)
    elif "probabilities" in rule and tensor.is_floating_point():
        return tensor.clamp_(0, 1)
    return tensor


def _size(api: str, rule: Mapping[str, Any], given: Given) -> tuple[int | None, int | None]:
    """How many places there are to index, and along which dimension of the index they are counted."""
    shape = given.shape(rule["argument"], rule["name"])
    if shape is None:
        return None, None
    if rule["dim"] == "all":
        return math.prod(shape), None
    dim = rule["dim"]
    if dim == "dim":
        dim = given.number(rules("dim").get(api), "dim")
        if dim is None:
            return None, None
    if not shape:
        return 1, None
    if not -len(shape) <= dim < len(shape):
        dim = len(shape) - 1
    return shape[dim], dim


def _without_repeats(tensor: torch.Tensor, size: int, dim: int, generator: torch.Generator) -> torch.Tensor:
    """Indices along ``dim`` of which none stands twice in its line, as far as there are enough."""
    if tensor.ndim <= 1:
        dim = 0
    if not tensor.ndim or tensor.shape[dim] > size:
        return tensor.clamp_(0, size - 1)
    shape = [*tensor.shape]
    shape[dim] = size
    order = torch.rand(shape, generator=generator).argsort(dim)
    return order.narrow(dim, 0, tensor.shape[dim]).contiguous().to(tensor.dtype)
