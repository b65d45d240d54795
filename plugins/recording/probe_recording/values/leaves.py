"""The leaves of a record as ``dump.json`` holds them (docs/formats.md#leaves)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar, Union

N = TypeVar("N")

Json = Union[None, bool, int, float, str, list[Any], dict[str, Any]]
Number = Union[int, float, bool, None]
Four = tuple[Number, Number, Number, Number]
"""The statistics of a tensor: Max, Min, Mean, Norm."""

NOTHING: Four = (None, None, None, None)
Save = Callable[[str, Any], "str | None"]
"""A function that stores a tensor under a name and returns its ``data_name``; None if it cannot be stored."""


@dataclass(slots=True, eq=False)
class TensorLeaf:
    """The leaf of one tensor; statistics that are still on a device are filled in before it is written.

    Attributes:
        kind: The field ``type``, such as ``torch.Tensor``.
        dtype: The name of the dtype, in the framework's words.
        shape: The sizes.
        requires_grad: None if the framework has no such property; the field is then left out.
        statistics: Max, Min, Mean and Norm; None for each that does not exist.
        checksum: The field ``md5``; None for no checksum.
        data_name: The name of the tensor's file; None if the data are not stored.
        extra: Further fields of special tensors, such as ``device_mesh`` and ``placements`` of a DTensor.
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
        """Return the leaf as JSON."""
        high, low, mean, norm = self.statistics
        text = (
            f'{{"type": "{self.kind}", "dtype": "{self.dtype}", "shape": {self.shape}, '
            f'"Max": {number(high)}, "Min": {number(low)}, "Mean": {number(mean)}, "Norm": {number(norm)}'
        )
        if self.requires_grad is not None:
            text += f', "requires_grad": {"true" if self.requires_grad else "false"}'
        if self.extra:
            text += f", {json.dumps(self.extra)[1:-1]}"
        if self.checksum is not None:
            text += f', "md5": "{self.checksum}"'
        if self.data_name is not None:
            text += f', "data_name": {quote(self.data_name)}'
        return text + "}"


@dataclass(slots=True, eq=False)
class StoredLeaf:
    """The leaf of one tensor as JSON, and the name of its data.

    Attributes:
        json: The JSON of the leaf without the name of its data.
        data_name: The name of the tensor's file; None if the data are not stored.
    """

    json: str
    data_name: str | None

    def text(self) -> str:
        """Return the leaf as JSON."""
        return self.json if self.data_name is None else f'{self.json[:-1]}, "data_name": {quote(self.data_name)}}}'


Tree = Any
"""A leaf, the JSON of leaves (a str), or nested lists and dicts of these: what ``encode`` turns into JSON."""


MAX_DECIMAL_BITS = 8192
"""Largest number of bits of a whole number that is written in base 10; longer ones are in base 16."""


MAX_NAMES = 16_384
"""Number of names whose JSON is cached; the steps of a training repeat most of them."""


class Plain(dict[str, Any]):
    """A JSON object that is one leaf and no tensor; a dict of any other class holds leaves."""


def scalar(value: bool | int | float | str) -> Plain:
    """Return the leaf of a Python scalar; an int of more than ``MAX_DECIMAL_BITS`` bits becomes a hex text."""
    if type(value) is int and value.bit_length() > MAX_DECIMAL_BITS:
        return Plain(type="int", value=hex(value))
    return Plain(type=type(value).__name__, value=value)


def encode(tree: Tree) -> str:
    """Return a tree as JSON on one line; NaN and infinities as Python's ``json`` writes them."""
    kind = type(tree)
    if kind is str:
        return tree  # type: ignore[no-any-return]
    if tree is None:
        return "null"
    if kind is TensorLeaf or kind is StoredLeaf:
        return tree.text()  # type: ignore[no-any-return]
    if kind is list:
        return f"[{', '.join(map(encode, tree))}]"
    if kind is dict:
        members = [f"{quote(key)}: {v if type(v) is str else encode(v)}" for key, v in tree.items()]
        return f"{{{', '.join(members)}}}"
    if kind is Plain and type(tree.get("value")) in (int, float) and len(tree) == 2:
        return f'{{"type": "{tree["type"]}", "value": {number(tree["value"])}}}'
    return _dumps(tree)


def number(value: Number) -> str:
    """Return a statistic as JSON; NaN and infinities as Python's ``json`` writes them."""
    if value is None:
        return "null"
    kind = type(value)
    if kind is int or (kind is float and value - value == 0.0):
        return repr(value)
    return _dumps(value)


@lru_cache(MAX_NAMES)
def encode_number(value: N) -> N | str:
    """Return NaN and infinities as text, and other values unchanged, as files in strict JSON hold them."""
    return repr(value) if isinstance(value, float) and not math.isfinite(value) else value


def quote(name: str) -> str:
    """Return a name as a JSON text."""
    plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    return f'"{name}"' if plain else _dumps(name)


def encode_names(names: dict[str, str | None]) -> str:
    """Return names, each with another name or None, as JSON with one pair a line."""
    pairs = [f"{quote(key)}: {'null' if name is None else quote(name)}" for key, name in names.items()]
    return "{\n " + ",\n ".join(pairs) + "\n}" if pairs else "{}"


def drop_data_names(tree: Tree) -> None:
    """Remove all ``data_name`` fields from a tree, because the data were not stored."""
    if type(tree) is TensorLeaf or type(tree) is StoredLeaf:
        tree.data_name = None
    elif type(tree) is list:
        for item in tree:
            drop_data_names(item)
    elif type(tree) is dict:
        for item in tree.values():
            drop_data_names(item)


_dumps = json.JSONEncoder(check_circular=False).encode
