"""The leaves of a record as ``dump.json`` holds them (spec/dump 8)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Union

from probe_pytorch.statistics import NOTHING, Four

Json = Union[None, bool, int, float, str, list[Any], dict[str, Any]]


@dataclass(slots=True, eq=False)
class TensorLeaf:
    """What is written of one tensor. Statistics that lie on a device are filled in before writing.

    Attributes:
        extra: Further fields of special tensors: ``device_mesh`` and ``placements`` of a DTensor.
    """

    kind: str
    dtype: str
    shape: list[int]
    requires_grad: bool
    statistics: Four = NOTHING
    checksum: str | None = None
    data_name: str | None = None
    extra: dict[str, Json] | None = None

    def fields(self) -> dict[str, Any]:
        """The leaf as JSON."""
        high, low, mean, norm = self.statistics
        found: dict[str, Any] = {
            "type": self.kind,
            "dtype": self.dtype,
            "shape": self.shape,
            "Max": high,
            "Min": low,
            "Mean": mean,
            "Norm": norm,
            "requires_grad": self.requires_grad,
        }
        if self.extra:
            found.update(self.extra)
        if self.checksum is not None:
            found["md5"] = self.checksum
        if self.data_name is not None:
            found["data_name"] = self.data_name
        return found


Tree = Any
"""A leaf, or lists and dicts of them: what ``encode`` turns into JSON."""


def scalar(value: bool | int | float | str) -> Json:
    """The leaf of a Python scalar."""
    return {"type": type(value).__name__, "value": value}


def _fields(leaf: object) -> dict[str, Any]:
    if isinstance(leaf, TensorLeaf):
        return leaf.fields()
    raise TypeError(f"{type(leaf).__name__} is no leaf")


encode = json.JSONEncoder(default=_fields, check_circular=False).encode
"""JSON on one line; NaN and infinities as the peer writes them."""
