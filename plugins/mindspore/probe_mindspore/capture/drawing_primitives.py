"""Primitives that draw random numbers, by the rules in ``draws.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, Union

import yaml

from probe_mindspore import compat

Unseeded = Union[int, Literal["never", "always"]]


@dataclass(frozen=True, slots=True)
class DrawRule:
    """The way in which a primitive receives its seeds.

    Attributes:
        seeds: The arguments of its constructor that are seeds.
        input: The place of its seed among its inputs; None if it is not an input.
        unseeded: The value of all seeds with which its kernel takes its seed from the operating system.
    """

    seeds: tuple[str, ...]
    input: int | None
    unseeded: Unseeded


@dataclass(frozen=True, slots=True)
class Seeding:
    """The seeds of a call of a primitive that draws random numbers.

    Attributes:
        name: The name of the primitive.
        seeds: Its seeds; empty if no seed reaches its kernel.
        is_unseeded: True if its kernel took its seed from the operating system.
    """

    name: str
    seeds: tuple[int, ...]
    is_unseeded: bool


def seeding_of(primitive: Any, args: Sequence[Any]) -> Seeding | None:
    """Return the seeds of a call of a primitive; None if it draws no random numbers.

    Args:
        primitive: The primitive.
        args: The inputs of the call.
    """
    name = compat.primitive_name(primitive)
    rule = _exceptions().get(name)
    if rule is None:
        if not _has_seeds(type(primitive), name, primitive):
            return None
        rule = _default()
    attributes = compat.attributes_of(primitive)
    values = [attributes[seed] for seed in rule.seeds if seed in attributes]
    if rule.input is not None and len(args) > rule.input:
        values.append(args[rule.input])
    seeds = tuple(int(value) for value in values if isinstance(value, int))
    is_unseeded = rule.unseeded == "always" or (bool(seeds) and all(seed == rule.unseeded for seed in seeds))
    return Seeding(name, seeds, is_unseeded)


_DRAWING: dict[tuple[type, str], bool] = {}


def _has_seeds(kind: type, name: str, primitive: Any) -> bool:
    """Return True if the constructor of a primitive has arguments that are seeds."""
    found = _DRAWING.get((kind, name))
    if found is None:
        attributes = compat.attributes_of(primitive)
        # a generator holds its seed as a tensor
        found = any(isinstance(attributes.get(seed), int) for seed in _default().seeds)
        _DRAWING[kind, name] = found
    return found


@cache
def _rules() -> Any:
    return yaml.safe_load((files("probe_mindspore.capture") / "draws.yaml").read_text("utf-8"))


@cache
def _default() -> DrawRule:
    return DrawRule(tuple(_rules()["seeds"]), None, _rules()["unseeded"])


@cache
def _exceptions() -> dict[str, DrawRule]:
    """Return the rules of primitives that differ from the default, by their names."""
    default = _default()
    rules = {}
    for name, fields in _rules()["primitives"].items():
        seeds = tuple(fields.get("seeds", default.seeds))
        rules[name] = DrawRule(seeds, fields.get("input"), fields.get("unseeded", default.unseeded))
    return rules
