"""The leaves of a record as ``dump.json`` holds them (spec/dump 8)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Union

Json = Union[None, bool, int, float, str, list[Any], dict[str, Any]]
Number = Union[int, float, bool, None]
Four = tuple[Number, Number, Number, Number]
"""Max, Min, Mean, Norm."""

NOTHING: Four = (None, None, None, None)
Save = Callable[[str, Any], "str | None"]
"""Stores the data of a tensor under a name; the name of its file, or None where it cannot be stored."""


@dataclass(slots=True, eq=False)
class TensorLeaf:
    """What is written of one tensor. Statistics that lie on a device are filled in before writing.

    Attributes:
        requires_grad: None where the framework knows no such thing; it is then left out.
        extra: Further fields of special tensors: ``device_mesh`` and ``placements`` of a DTensor.
    """

    kind: str
    dtype: str
    shape: list[int]
    requires_grad: bool | None
    statistics: Four = NOTHING
    checksum: str | None = None
    data_name: str | None = None
    extra: dict[str, Json] | None = None

    def text(self) -> str:
        """The leaf as JSON."""
        high, low, mean, norm = self.statistics
        found = (
            f'{{"type": "{self.kind}", "dtype": "{self.dtype}", "shape": {self.shape}, '
            f'"Max": {number(high)}, "Min": {number(low)}, "Mean": {number(mean)}, "Norm": {number(norm)}'
        )
        if self.requires_grad is not None:
            found += f', "requires_grad": {"true" if self.requires_grad else "false"}'
        if self.extra:
            found += f", {json.dumps(self.extra)[1:-1]}"
        if self.checksum is not None:
            found += f', "md5": "{self.checksum}"'
        if self.data_name is not None:
            found += f', "data_name": {quoted(self.data_name)}'
        return found + "}"


Tree = Any
"""A leaf, or lists and dicts of them: what ``encode`` turns into JSON."""


LONGEST = 8192
"""Bits of a whole number that is written in base 10."""


class Plain(dict[str, Any]):
    """A leaf that is no tensor, as JSON; a dict of any other class holds leaves."""


def scalar(value: bool | int | float | str) -> Plain:
    """The leaf of a Python scalar; of a number too long to be printed, its digits in base 16."""
    if type(value) is int and value.bit_length() > LONGEST:
        return Plain(type="int", value=hex(value))
    return Plain(type=type(value).__name__, value=value)


def encode(tree: Tree) -> str:
    """JSON on one line; NaN and infinities as the peer writes them."""
    kind = type(tree)
    if kind is TensorLeaf:
        return tree.text()  # type: ignore[no-any-return]
    if kind is list:
        return f"[{', '.join(map(encode, tree))}]"
    if kind is dict:
        return f"{{{', '.join([f'{quoted(key)}: {encode(value)}' for key, value in tree.items()])}}}"
    if kind is Plain and type(tree.get("value")) in (int, float) and len(tree) == 2:
        return f'{{"type": "{tree["type"]}", "value": {number(tree["value"])}}}'
    return _dumps(tree)


def number(value: Number) -> str:
    """A statistic as JSON, with NaN and infinities as Python's reader takes them."""
    kind = type(value)
    if kind is int or (kind is float and value - value == 0.0):  # type: ignore[operator]
        return repr(value)
    return _dumps(value)


def quoted(name: str) -> str:
    """A name as JSON."""
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    return f'"{name}"' if plain else _dumps(name)


def without_data(tree: Tree) -> None:
    """Let no tensor in ``tree`` name data, for they were not stored."""
    if type(tree) is TensorLeaf:
        tree.data_name = None
    elif type(tree) is list:
        for item in tree:
            without_data(item)
    elif type(tree) is dict:
        for item in tree.values():
            without_data(item)


_dumps = json.JSONEncoder(check_circular=False).encode
