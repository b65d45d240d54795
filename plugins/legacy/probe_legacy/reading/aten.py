"""Aten operators and the API operators that call them (docs/legacy.md#aten-operators)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from probe_core.files.packaged import load_yaml

ATEN = "Aten"
"""The scope of Aten operators."""


@lru_cache(maxsize=4096)
def find_operators(aten: str) -> Sequence[str]:
    """Return the API operators that may call an Aten operator.

    Args:
        aten: The name of the Aten operator, with or without an overload such as ``.Tensor``.
    """
    name = aten.partition(".")[0]
    table = load_yaml(__package__, "aten.yaml")
    if (listed := table["operators"].get(name)) is not None:
        operators: list[str] = listed
        return operators
    stripped = _strip_affixes(name, table["parts"])
    return [name] if stripped == name else [name, *table["operators"].get(stripped, [stripped])]


def find_place(aten: str, operator: str, path: str) -> str | None:
    """Return the place of an argument in the API operator; None if the API operator has no such argument.

    Args:
        aten: The name of the Aten operator, with or without an overload.
        operator: The API operator.
        path: The place of the argument in the Aten operator, such as ``0`` or ``1.0``.
    """
    name = aten.partition(".")[0]
    places: dict[int, int] | None = load_yaml(__package__, "aten.yaml")["arguments"].get(name)
    if places is None or operator == name:
        return path
    first, _, rest = path.partition(".")
    if not first.isdigit() or int(first) not in places:
        return None
    return f"{places[int(first)]}.{rest}".rstrip(".")


def _strip_affixes(name: str, parts: dict[str, list[str]]) -> str:
    """Return a name without affixes that describe the implementation; names such as ``__and__`` are not changed."""
    if name.startswith("__"):
        return name
    is_changed = True
    while is_changed:
        is_changed = False
        for part in parts["before"]:
            if name.startswith(part) and len(name) > len(part):
                name, is_changed = name.removeprefix(part), True
        for part in parts["after"]:
            if name.endswith(part) and len(name) > len(part):
                name, is_changed = name.removesuffix(part), True
    return name
