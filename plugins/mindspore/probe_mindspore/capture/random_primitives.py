"""Primitives that draw random numbers, by the rules in ``draws.yaml``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Union

from probe_core.files.packaged import load_yaml
from probe_mindspore import compat

Unseeded = Union[int, Literal["never", "always"]]


@dataclass(frozen=True, slots=True)
class DrawRule:
    """The way in which a primitive receives its seeds.

    Attributes:
        seeds: The arguments of its constructor that are seeds.
        input: The place of its seed among its inputs; None if it is not an input.
        unseeded: The value that all seeds have if the kernel takes its seed from the operating system.
    """

    seeds: tuple[str, ...]
    input: int | None
    unseeded: Unseeded


@dataclass(frozen=True, slots=True)
class PrimitiveSeeds:
    """The seeds of a call of a primitive that draws random numbers.

    Attributes:
        name: The name of the primitive.
        seeds: Its seeds; empty if no seed reaches its kernel.
        is_unseeded: True if its kernel took its seed from the operating system.
    """

    name: str
    seeds: tuple[int, ...]
    is_unseeded: bool


def find_seeds(primitive: Any, args: Sequence[Any]) -> PrimitiveSeeds | None:
    """Return the seeds of a call of a primitive; None if it draws no random numbers.

    Args:
        primitive: The primitive.
        args: The inputs of the call.
    """
    name = compat.get_primitive_name(primitive)
    rule = _load_exceptions().get(name)
    if rule is None:
        if not _has_seeds(type(primitive), name, primitive):
            return None
        rule = _load_default_rule()
    attributes = compat.read_attributes(primitive)
    values = [attributes[seed] for seed in rule.seeds if seed in attributes]
    if rule.input is not None and len(args) > rule.input:
        values.append(args[rule.input])
    seeds = tuple(int(value) for value in values if isinstance(value, int))
    is_unseeded = rule.unseeded == "always" or (bool(seeds) and all(seed == rule.unseeded for seed in seeds))
    return PrimitiveSeeds(name, seeds, is_unseeded)


_SEEDED_CLASSES: dict[tuple[type, str], bool] = {}
"""Classes and names of primitives, each with True if it has seeds, as its first primitive shows."""


def _has_seeds(primitive_class: type, name: str, primitive: Any) -> bool:
    """Return True if the constructor of a primitive has arguments that are seeds."""
    has_seeds = _SEEDED_CLASSES.get((primitive_class, name))
    if has_seeds is None:
        attributes = compat.read_attributes(primitive)
        # a generator holds its seed as a tensor
        has_seeds = any(isinstance(attributes.get(seed), int) for seed in _load_default_rule().seeds)
        _SEEDED_CLASSES[primitive_class, name] = has_seeds
    return has_seeds


@cache
def _load_default_rule() -> DrawRule:
    rules = load_yaml(__package__, "draws.yaml")
    return DrawRule(tuple(rules["seeds"]), None, rules["unseeded"])


@cache
def _load_exceptions() -> dict[str, DrawRule]:
    """Return the rules of primitives that differ from the default, by their names."""
    default = _load_default_rule()
    rules = {}
    for name, fields in load_yaml(__package__, "draws.yaml")["primitives"].items():
        seeds = tuple(fields.get("seeds", default.seeds))
        rules[name] = DrawRule(seeds, fields.get("input"), fields.get("unseeded", default.unseeded))
    return rules
