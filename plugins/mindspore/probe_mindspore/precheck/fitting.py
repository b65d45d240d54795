"""Random inputs that an API takes: indices within range, sorted boundaries, and so on (``rules.yaml``)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from probe_mindspore.precheck.rules import rules
from probe_mindspore.precheck.tensors import Values


class Given:
    """The recorded arguments of a call: descriptions, by position or by keyword."""

    def __init__(self, positional: Sequence[Any], keywords: Mapping[str, Any]) -> None:
        self._positional = positional
        self._keywords = keywords

    def shape(self, position: int, name: str) -> list[int] | None:
        """The shape of a tensor argument."""
        found = self._find(position, name)
        return found["shape"] if isinstance(found, Mapping) and isinstance(found.get("shape"), list) else None

    def number(self, position: int | None, name: str) -> int | None:
        """A whole number that was given."""
        found = self._find(position, name)
        value = found.get("value") if isinstance(found, Mapping) else found
        return value if type(value) is int else None

    def _find(self, position: int | None, name: str) -> Any:
        if position is not None and position < len(self._positional):
            return self._positional[position]
        return self._keywords.get(name)


def rule_for(api: str, place: int | str) -> Mapping[str, Any] | None:
    """The rule of the argument at a position, or of a keyword; None where there is none."""
    by_position: Mapping[int, Mapping[str, Any]] = rules("inputs").get(api, {})
    if isinstance(place, int):
        return by_position.get(place)
    return next((rule for rule in by_position.values() if rule["name"] == place), None)


def fitted(
    values: Values, api: str, rule: Mapping[str, Any], given: Given, generator: np.random.Generator
) -> Values:
    """``values``, changed so that the API takes them; as they are where nothing is known."""
    is_index = values.dtype.kind in "iu"
    if "index_of" in rule and is_index:
        size, dim = _size(api, rule["index_of"], given)
        if size is None or size < 1:
            return values
        if rule.get("unique") and dim is not None:
            return _without_repeats(values, size, dim, generator)
        return np.clip(values, 0, size - 1)
    if "below" in rule and is_index:
        limit = given.number(rule["below"]["argument"], rule["below"]["name"])
        return np.clip(values, 0, limit - 1) if limit is not None and limit > 0 else np.clip(values, 0, None)
    if "sorted" in rule:
        return np.sort(values, -1) if values.ndim else values
    if "probabilities" in rule and values.dtype.kind == "f":
        return np.clip(values, 0, 1)
    return values


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


def _without_repeats(values: Values, size: int, dim: int, generator: np.random.Generator) -> Values:
    """Indices along ``dim`` of which none stands twice in its line, as far as there are enough."""
    if values.ndim <= 1:
        dim = 0
    if not values.ndim or values.shape[dim] > size:
        return np.clip(values, 0, size - 1)
    shape = [*values.shape]
    shape[dim] = size
    order = generator.random(shape).argsort(dim)
    return np.take(order, np.arange(values.shape[dim]), dim).astype(values.dtype)
