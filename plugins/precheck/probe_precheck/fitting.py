"""Rules of ``rules.yaml`` for random arguments whose range depends on other arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probe_precheck.rules import Rules


@dataclass(frozen=True, slots=True)
class RecordedArguments:
    """Descriptions of a call's recorded arguments, by position and by keyword."""

    positional: Sequence[Any]
    keywords: Mapping[str, Any]

    def shape(self, position: int, name: str) -> list[int] | None:
        """Return the shape of a tensor argument; None if the argument is not a tensor."""
        argument = self._find(position, name)
        shape = argument.get("shape") if isinstance(argument, Mapping) else None
        return shape if isinstance(shape, list) else None

    def number(self, position: int | None, name: str) -> int | None:
        """Return an argument that is an integer; None if it is not."""
        argument = self._find(position, name)
        value = argument.get("value") if isinstance(argument, Mapping) else argument
        return value if type(value) is int else None

    def _find(self, position: int | None, name: str) -> Any:
        if position is not None and position < len(self.positional):
            return self.positional[position]
        argument = self.keywords.get(name)
        return self.keywords.get("self") if argument is None and name == "input" else argument


def find_input_rule(rules: Rules, api: str, position: int | str | None) -> Mapping[str, Any] | None:
    """Return the rule of an argument; None if there is no rule.

    Args:
        rules: The rules of the runner.
        api: The bare name of the API.
        position: The position or keyword of the argument; None for a value inside an argument, which has no
            rule.
    """
    by_position: Mapping[int, Mapping[str, Any]] = rules("inputs").get(api, {})
    if isinstance(position, int):
        return by_position.get(position)
    return next((rule for rule in by_position.values() if rule["name"] == position), None)


def find_indexed_size(
    rules: Rules, api: str, rule: Mapping[str, Any], described_arguments: RecordedArguments
) -> tuple[int | None, int | None]:
    """Return the number of elements that an index argument may select from, and the dimension that it indexes.

    Args:
        rules: The rules of the runner.
        api: The bare name of the API.
        rule: The entry ``index_of`` of the argument's rule, which names the indexed argument.
        described_arguments: The arguments of the call.

    Returns:
        The size and the dimension; None if unknown. The dimension is also None for an index into all elements.
    """
    shape = described_arguments.shape(rule["argument"], rule["name"])
    if shape is None:
        return None, None
    if rule["dim"] == "all":
        return math.prod(shape), None
    dim = rule["dim"]
    if dim == "dim":
        dim = described_arguments.number(rules("dim").get(api), "dim")
        if dim is None:
            return None, None
    if not shape:
        return 1, None
    if not -len(shape) <= dim < len(shape):
        dim = len(shape) - 1
    return shape[dim], dim
