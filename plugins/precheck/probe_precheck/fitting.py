"""Which rule of ``rules.yaml`` a made-up argument must fit, and what the other arguments say of its range."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probe_precheck.rules import Rules


@dataclass(frozen=True, slots=True)
class Given:
    """The recorded arguments of a call: descriptions, by position or by keyword."""

    positional: Sequence[Any]
    keywords: Mapping[str, Any]

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
        if position is not None and position < len(self.positional):
            return self.positional[position]
        found = self.keywords.get(name)
        return self.keywords.get("self") if found is None and name == "input" else found


def rule_for(rules: Rules, api: str, place: int | str | None) -> Mapping[str, Any] | None:
    """The rule of the argument at a position, or of a keyword; None where there is none.

    Nothing is known of what lies within an argument: its ``place`` is None.
    """
    by_position: Mapping[int, Mapping[str, Any]] = rules("inputs").get(api, {})
    if isinstance(place, int):
        return by_position.get(place)
    return next((rule for rule in by_position.values() if rule["name"] == place), None)


def size_of(rules: Rules, api: str, rule: Mapping[str, Any], given: Given) -> tuple[int | None, int | None]:
    """How many places there are to index, and along which dimension of the index they are counted.

    ``rule`` is what stands at ``index_of``; None for what is not known, or for an index into all places.
    """
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
