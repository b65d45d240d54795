"""From the arguments of a call to the leaves of its record: the walk, and what each object becomes.

Nothing that is walked over is changed, moved or kept. Objects of strangers are asked for nothing
but their type, their fields and, in containers, their items.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from probe_pytorch import compat
from probe_pytorch.leaves import Json, TensorLeaf, Tree, scalar
from probe_pytorch.statistics import measure

DEPTH = 200
"""How deep containers are followed; what lies deeper is null."""

TENSOR = "torch.Tensor"
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_SCALARS = (bool, int, float, str)
_DTYPE_NAMES: dict[torch.dtype, str] = {}

Save = Callable[[str, torch.Tensor], "str | None"]
"""Stores the data of a tensor under a name; the name of its file, or None where it cannot be stored."""


class Collector:
    """Turns values into trees of leaves.

    Args:
        checksum: None, or the checksum of a tensor's bytes.
        save: None, or what keeps the data of tensors.
        keep: What keeps the statistics that lie on a device until they are read back.
        wide: Accumulate statistics on devices in float64.
        measured: False records shapes and types only.
    """

    def __init__(
        self,
        checksum: Callable[[torch.Tensor], str] | None = None,
        keep: Callable[[torch.Tensor, Any], None] | None = None,
        wide: bool = True,
        measured: bool = True,
    ) -> None:
        self._checksum = checksum
        self._keep = keep
        self._wide = wide
        self._measured = measured

    def tree(self, value: Any, name: str, save: Save | None = None, depth: int = 0) -> Tree:
        """The tree of ``value``; ``name`` is what its tensor file would be called, without suffix."""
        kind = type(value)
        if kind in _PLAIN:
            return self.tensor(value, name, save)
        if value is None:
            return None
        if kind in _SCALARS:
            return scalar(value)
        if isinstance(value, torch.Tensor):
            return self._special(value, name, save)
        if depth > DEPTH:
            return None
        if kind is torch.Size:
            return {"type": "torch.Size", "value": [_size(item) for item in value]}
        if isinstance(value, (list, tuple)):
            fields = getattr(kind, "_fields", None)
            if isinstance(fields, tuple) and isinstance(value, tuple) and len(fields) == len(value):
                return {
                    str(field): self.tree(item, f"{name}.{field}", save, depth + 1)
                    for field, item in zip(fields, tuple.__iter__(value))
                }
            return [self.tree(item, f"{name}.{i}", save, depth + 1) for i, item in enumerate(value)]
        if isinstance(value, Mapping):
            return self._mapping(value, name, save, depth)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {
                field.name: self.tree(
                    getattr(value, field.name, None), f"{name}.{field.name}", save, depth + 1
                )
                for field in dataclasses.fields(value)
            }
        if isinstance(value, (set, frozenset)):
            return [self.tree(item, f"{name}.{i}", save, depth + 1) for i, item in enumerate(value)]
        return self._other(value, name, save, depth)

    def arguments(self, values: tuple[Any, ...], prefix: str, save: Save | None) -> list[Tree]:
        """The trees of positional arguments or of several outputs."""
        if save is None:  # nobody asks for names
            return [
                self.tensor(value, "", None) if type(value) in _PLAIN else self.tree(value, "", None)
                for value in values
            ]
        return [self.tree(value, f"{prefix}.{i}", save) for i, value in enumerate(values)]

    def keywords(self, values: Mapping[str, Any], prefix: str, save: Save | None) -> dict[str, Tree]:
        """The trees of keyword arguments."""
        return {key: self.keyword(key, value, f"{prefix}.{key}", save) for key, value in values.items()}

    def keyword(self, key: str, value: Any, name: str, save: Save | None) -> Tree:
        """The tree of one keyword argument; ``dtype`` and ``device`` are told by the keyword."""
        if key == "dtype":
            return None if value is None else {"type": "torch.dtype", "value": str(value)}
        if key == "device":
            shown = f"{value.type}:{value.index}" if isinstance(value, torch.device) else value
            return None if value is None else {"type": "torch.device", "value": shown}
        return self.tree(value, name, save)

    def tensor(self, tensor: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        """The leaf of a tensor that has a storage."""
        dtype = tensor.dtype
        text = _DTYPE_NAMES.get(dtype)
        if text is None:
            text = _DTYPE_NAMES[dtype] = str(dtype)
        leaf = TensorLeaf(TENSOR, text, list(tensor.shape), tensor.requires_grad)
        if not self._measured or compat.is_transformed(tensor):
            return leaf
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta or tensor.is_nested:
            return self._without_plain_storage(leaf, tensor)
        leaf.statistics = measure(tensor, self._keep, leaf, self._wide)
        if leaf.shape and not tensor.numel():
            return leaf
        if self._checksum is not None:
            leaf.checksum = self._checksum(tensor)
        if save is not None:
            leaf.data_name = save(name, tensor)
        return leaf

    def _without_plain_storage(self, leaf: TensorLeaf, tensor: torch.Tensor) -> TensorLeaf:
        """Sparse and nested: the statistics of what they store; quantised: of what it stands for."""
        inner: torch.Tensor | None = None
        tensor = tensor.detach()
        if tensor.is_meta:
            return leaf
        if tensor.is_quantized:
            inner = tensor.dequantize()
        elif tensor.is_nested:
            inner = tensor.values() if tensor.layout is torch.jagged else None
        elif tensor.layout is torch.sparse_coo:
            inner = tensor._values()
        elif hasattr(tensor, "values"):
            inner = tensor.values()
        if inner is not None:
            leaf.statistics = measure(inner, self._keep, leaf, self._wide)
        leaf.extra = {"layout": "quantized" if tensor.is_quantized else str(tensor.layout)}
        return leaf

    def _special(self, tensor: torch.Tensor, name: str, save: Save | None) -> Tree:
        """The leaf of a tensor of another class: its inner tensor where it is known to hold one."""
        kind = type(tensor)
        if compat.is_fake(tensor):
            return TensorLeaf("FakeTensor", str(tensor.dtype), _shape(tensor), tensor.requires_grad)
        with compat.no_functions():
            local = getattr(tensor, "_local_tensor", None)
            if isinstance(local, torch.Tensor) and hasattr(tensor, "placements"):
                leaf = self.tensor(local, name, save)
                leaf.kind = "torch.distributed.tensor.DTensor"
                leaf.shape, leaf.requires_grad = list(local.shape), tensor.requires_grad
                leaf.extra = {
                    "device_mesh": _mesh(getattr(tensor, "device_mesh", None)),
                    "placements": [str(placement) for placement in getattr(tensor, "placements", ())],
                    "global_shape": list(tensor.shape),
                }
                return leaf
            elem = getattr(tensor, "elem", None)
            if kind.__name__ == "AsyncCollectiveTensor" and isinstance(elem, torch.Tensor):
                # its values are there only after its wait: recording must not wait in its place
                return TensorLeaf("AsyncCollectiveTensor", str(tensor.dtype), _shape(tensor), False)
            leaf = TensorLeaf(TENSOR, str(tensor.dtype), _shape(tensor), tensor.requires_grad)
            if compat.is_wrapper(tensor):
                leaf.kind = kind.__name__
                return leaf
            plain = tensor.detach().as_subclass(torch.Tensor)
            inner = self.tensor(plain, name, save)
            inner.requires_grad = tensor.requires_grad
            return inner

    def _mapping(self, value: Mapping[Any, Any], name: str, save: Save | None, depth: int) -> Tree:
        found: dict[str, Tree] = {}
        for key, item in dict.items(value) if isinstance(value, dict) else value.items():
            text = (
                key
                if type(key) is str
                else str(key)
                if isinstance(key, (int, float, bool))
                else repr(key)[:80]
            )
            if type(key) is str and key in ("dtype", "device"):
                found[text] = self.keyword(key, item, f"{name}.{text}", save)
            else:
                found[text] = self.tree(item, f"{name}.{text}", save, depth + 1)
        if "type" in found and "value" in found:  # a leaf to every reader of this format
            found["type "] = found.pop("type")
        return found

    def _other(self, value: Any, name: str, save: Save | None, depth: int) -> Json | Tree:
        # a dtype or device by position is null, as by the peer: null and a leaf would not pair
        if isinstance(value, slice):
            return {
                "type": "slice",
                "value": [_index(part) for part in (value.start, value.stop, value.step)],
            }
        if value is Ellipsis:
            return {"type": "ellipsis", "value": "..."}
        if isinstance(value, torch.memory_format):
            return {"type": "torch.memory_format", "format": str(value).removeprefix("torch.")}
        if isinstance(value, np.generic) and isinstance(value.item(), _SCALARS):
            return {"type": value.dtype.name, "value": value.item()}
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, bool):  # of a subclass, as the three below
            return scalar(bool(value))
        for kind in (int, float, str):
            if isinstance(value, kind):
                return scalar(kind(value))
        return self._distributed(value, name, save, depth)

    def _distributed(self, value: Any, name: str, save: Save | None, depth: int) -> Tree:
        if not torch.distributed.is_available():
            return None
        dist = torch.distributed
        kind = type(value)
        if isinstance(value, dist.ProcessGroup):
            ranks, number = _group(value)
            return {"type": "torch.ProcessGroup", "group_ranks": ranks, "group_id": number}
        if isinstance(value, dist.P2POp):
            return {
                "class_type": "torch.distributed.P2POp",
                "tensor": self.tree(value.tensor, f"{name}.tensor", save, depth + 1),
                "op": getattr(value.op, "__name__", str(value.op)),
                "peer": scalar(int(value.peer)),
                "tag": scalar(int(value.tag)),
                "group_id": _group(value.group)[1] if value.group is not None else None,
            }
        if kind.__name__ == "ReduceOp" or kind.__qualname__.startswith("ReduceOp"):
            return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{_operation(value)}"}
        return None


def _shape(tensor: torch.Tensor) -> list[int]:
    return [_size(size) for size in tensor.shape]


def _size(size: Any) -> int:
    """A size as a number; a symbolic one that has no number yet is 0."""
    try:
        return int(size)
    except Exception:
        return 0


def _index(part: Any) -> Json:
    if part is None:
        return None
    try:
        return int(part)
    except Exception:
        return None


def _mesh(mesh: Any) -> Json:
    inner = getattr(mesh, "mesh", None)
    return inner.tolist() if isinstance(inner, torch.Tensor) else None


def _group(group: Any) -> tuple[list[int], str]:
    ranks = list(torch.distributed.get_process_group_ranks(group))
    return ranks, str(zlib.crc32(str(ranks).encode()))


def _operation(value: Any) -> str:
    text = str(getattr(value, "op", value))
    return text.rpartition(".")[2].rstrip(">")


def _array(value: np.ndarray[Any, Any]) -> Json:
    found: dict[str, Any] = {"type": "numpy.ndarray", "dtype": str(value.dtype), "shape": list(value.shape)}
    four: list[Any] = [None] * 4
    if value.size and value.dtype.kind in "iuf":
        wide = value.astype(np.float64)
        four = [
            value.max().item(),
            value.min().item(),
            float(wide.mean()),
            math.sqrt(float((wide * wide).sum())),
        ]
    elif value.size and value.dtype.kind == "b":
        four = [bool(value.any()), bool(value.all()), None, None]
    found.update(zip(("Max", "Min", "Mean", "Norm"), four))
    return found
