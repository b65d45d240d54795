"""Outputs that a training sent, in the structure in which a call returns them (docs/online.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from probe_precheck.api import Call
from probe_precheck.rebuild import list_descriptions

from probe_pytorch.precheck.rebuild import Rebuilder, decode_plain_value

RANDOM = "It draws random numbers, so what was sent cannot be computed again. SKIP."


def list_sent_outputs(call: Call, rebuilder: Rebuilder) -> list[Any]:
    """Return the sent outputs of a call's forward, depth first.

    Raises:
        Unbuildable: The data of one were not sent, or cannot be read.
    """
    outputs: list[Any] = []
    for number, leaf in enumerate(list_descriptions(call.forward.get("output"))):
        if not isinstance(leaf, Mapping):
            outputs.append(leaf)
        elif "dtype" in leaf:
            outputs.append(rebuilder.rebuild_tensor(leaf, f"{call.name}.forward.output.{number}").detach())
        else:
            outputs.append(decode_plain_value(leaf))
    return outputs


def arrange_leaves(leaves: list[Any], like: Any) -> Any:
    """Return leaves in the nested lists and dicts of another output; as they are if their number differs."""
    if len(leaves) != sum(1 for _ in _iterate_leaves(like)):
        return leaves
    return _fill_structure(iter(leaves), like)


def _fill_structure(left: Iterator[Any], like: Any) -> Any:
    if isinstance(like, list):
        return [_fill_structure(left, part) for part in like]
    if isinstance(like, dict):
        return {key: _fill_structure(left, part) for key, part in like.items()}
    return next(left)


def _iterate_leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, dict)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _iterate_leaves(item)
    else:
        yield value
