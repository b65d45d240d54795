"""Outputs that a training sent, in the structure in which a call returns them (docs/online.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probe_precheck import Call, described_leaves

from probe_pytorch.precheck.rebuild import Rebuilder, plain_value

RANDOM = "It draws random numbers, so what was sent cannot be computed again. SKIP."


def sent_outputs(call: Call, rebuilder: Rebuilder) -> list[Any]:
    """Return the sent outputs of a call's forward, depth first.

    Raises:
        Unbuildable: The data of one were not sent, or cannot be read.
    """
    found: list[Any] = []
    for number, leaf in enumerate(described_leaves(call.forward.get("output"))):
        if not isinstance(leaf, Mapping):
            found.append(leaf)
        elif "dtype" in leaf:
            found.append(rebuilder.tensor(leaf, f"{call.name}.forward.output.{number}").detach())
        else:
            found.append(plain_value(leaf))
    return found


def arranged(leaves: list[Any], like: Any) -> Any:
    """Return leaves in the nested lists and dicts of another output; as they are if their number differs."""
    if len(leaves) != sum(1 for _ in _leaves(like)):
        return leaves
    return _taken(iter(leaves), like)


def _taken(left: Iterator[Any], like: Any) -> Any:
    if isinstance(like, list):
        return [_taken(left, part) for part in like]
    if isinstance(like, dict):
        return {key: _taken(left, part) for key, part in like.items()}
    return next(left)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value
