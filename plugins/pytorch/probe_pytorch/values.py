"""From the arguments of a call to the leaves of its record: the walk, and what each object becomes.

Nothing that is walked over is changed, moved or kept. Objects of strangers are asked for nothing
but their type, their fields and, in containers, their items; one that raises costs its own leaf.
"""

from __future__ import annotations

import dataclasses
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from probe_recording import Json, Plain, TensorLeaf, Tree, scalar

from probe_pytorch import compat
from probe_pytorch.statistics import measure

DEPTH = 200
"""How deep containers are followed; what lies deeper is null."""

MOST = 10_000
"""How many containers of one value are followed; the rest is null, as are containers inside themselves."""

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
        keep: What keeps the statistics that lie on a device until they are read back.
        wide: Accumulate statistics on devices in float64.
        measured: False records shapes and types only.
        failed: Told of what a value raised while it was walked over.
    """

    def __init__(
        self,
        checksum: Callable[[torch.Tensor], str] | None = None,
        keep: Callable[[torch.Tensor, Any], None] | None = None,
        wide: bool = True,
        measured: bool = True,
        failed: Callable[[str, str, BaseException], None] | None = None,
    ) -> None:
        self._checksum = checksum
        self._keep = keep
        self._wide = wide
        self._measured = measured
        self._failed = failed

    def tree(self, value: Any, name: str, save: Save | None = None) -> Tree:
        """The tree of ``value``; ``name`` is what its tensor file would be called, without suffix."""
        kind = type(value)
        if kind in _PLAIN:
            return self.tensor(value, name, save)
        if value is None:
            return None
        if kind in _SCALARS:
            return scalar(value)
        return _Walk(self, save).tree(value, name)

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
        if value is None or key not in ("dtype", "device"):
            return self.tree(value, name, save)
        if key == "dtype":
            return Plain(type="torch.dtype", value=str(value))
        if isinstance(value, torch.device):
            return Plain(type="torch.device", value=f"{value.type}:{value.index}")
        return Plain(type="torch.device", value=value) if type(value) in (int, str) else None

    def error(self, name: str, error: BaseException) -> None:
        """A value raised while it was walked over."""
        if self._failed is not None:
            self._failed("value", name, error)

    # -- tensors ---------------------------------------------------------------------------

    def tensor(self, tensor: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        """The leaf of a tensor of torch's own class."""
        dtype = tensor.dtype
        text = _DTYPE_NAMES.get(dtype)
        if text is None:
            text = _DTYPE_NAMES[dtype] = str(dtype)
        if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
            return self._unusual(TensorLeaf(TENSOR, text, _shape(tensor), tensor.requires_grad), tensor)
        leaf = TensorLeaf(TENSOR, text, list(tensor.shape), tensor.requires_grad)
        if not self._measured or compat.is_transformed(tensor) or compat.is_freed(tensor):
            return leaf
        leaf.statistics = measure(tensor, self._keep, leaf, self._wide)
        if leaf.shape and not tensor.numel():
            return leaf
        if self._checksum is not None:
            leaf.checksum = self._checksum(tensor)
        if save is not None:
            leaf.data_name = save(name, tensor)
        return leaf

    def _unusual(self, leaf: TensorLeaf, tensor: torch.Tensor) -> TensorLeaf:
        """Sparse and nested: the statistics of what they store; quantised: of what it stands for."""
        if tensor.is_meta or not self._measured:
            return leaf
        leaf.extra = {"layout": "quantized" if tensor.is_quantized else str(tensor.layout)}
        inner = _stored(tensor.detach())
        if inner is not None and not compat.is_freed(inner):
            leaf.statistics = measure(inner, self._keep, leaf, self._wide)
        return leaf

    def special(self, tensor: torch.Tensor, name: str, save: Save | None) -> Tree:
        """The leaf of a tensor of another class: its inner tensor where it is known to hold one."""
        kind = type(tensor)
        if compat.is_fake(tensor):
            return TensorLeaf("FakeTensor", str(tensor.dtype), _shape(tensor), tensor.requires_grad)
        with compat.no_functions():
            local = getattr(tensor, "_local_tensor", None)
            if isinstance(local, torch.Tensor) and hasattr(tensor, "placements"):
                return self._shard(tensor, local, name, save)
            leaf = TensorLeaf(kind.__name__, str(tensor.dtype), _shape(tensor), tensor.requires_grad)
            if kind.__name__ == "AsyncCollectiveTensor":
                return leaf  # its values are there only after its wait, which is not ours to do
            if tensor.layout is torch.jagged:
                return self._unusual(leaf, tensor)
            if compat.is_wrapper(tensor):
                return leaf
            with compat.no_subclasses():
                inner = self.tensor(tensor.detach().as_subclass(torch.Tensor), name, save)
            inner.requires_grad = tensor.requires_grad
            return inner

    def _shard(self, tensor: Any, local: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        """A DTensor: the part that is here, and how the whole is placed."""
        found = self.tree(local, name, save)
        if not isinstance(found, TensorLeaf):
            found = TensorLeaf(TENSOR, str(tensor.dtype), _shape(tensor), False)
        found.kind = "torch.distributed.tensor.DTensor"
        found.requires_grad = tensor.requires_grad
        found.extra = {
            "device_mesh": _mesh(getattr(tensor, "device_mesh", None)),
            "placements": [str(placement) for placement in getattr(tensor, "placements", ())],
            "global_shape": _shape(tensor),
        }
        return found


class _Walk:
    """Through the containers of one value, no deeper and no further than the bounds, never in circles."""

    def __init__(self, collector: Collector, save: Save | None) -> None:
        self._collector = collector
        self._save = save
        self._around: list[int] = []
        self._left = MOST

    def tree(self, value: Any, name: str) -> Tree:
        """The tree of ``value``; what it raises costs this leaf."""
        kind = type(value)
        if kind in _PLAIN:
            return self._collector.tensor(value, name, self._save)
        if value is None:
            return None
        if kind in _SCALARS:
            return scalar(value)
        try:
            if isinstance(value, torch.Tensor):
                return self._collector.special(value, name, self._save)
            return self._container(value, kind, name)
        except Exception as error:
            self._collector.error(name, error)
            return None

    def _container(self, value: Any, kind: type, name: str) -> Tree:
        if kind is torch.Size:
            return Plain(type="torch.Size", value=[_size(item) for item in value])
        items = _items(value, kind)
        if items is None:
            return self._other(value, name)
        self._left -= 1
        if self._left < 0 or id(value) in self._around or len(self._around) > DEPTH:
            return None
        self._around.append(id(value))
        try:
            if isinstance(items, list):
                return [self.tree(item, f"{name}.{i}") for i, item in enumerate(items)]
            return self._members(items, name)
        finally:
            self._around.pop()

    def _members(self, items: Iterator[tuple[Any, Any]], name: str) -> dict[str, Tree]:
        found: dict[str, Tree] = {}
        for key, item in items:
            text = key if type(key) is str else str(key) if type(key) in _SCALARS else repr(key)[:80]
            if text == "type":  # a dict with this key is a leaf to every reader of the format
                text = "type_"
            while text in found:
                text += "_"
            if type(key) is str and key in ("dtype", "device"):
                found[text] = self._collector.keyword(key, item, f"{name}.{text}", self._save)
            else:
                found[text] = self.tree(item, f"{name}.{text}")
        return found

    def _other(self, value: Any, name: str) -> Tree:
        # a dtype or device by position is null, as by the peer: null and a leaf would not pair
        if isinstance(value, slice):
            parts = [_index(part) for part in (value.start, value.stop, value.step)]
            return Plain(type="slice", value=parts)
        if value is Ellipsis:
            return Plain(type="ellipsis", value="...")
        if isinstance(value, torch.memory_format):
            return Plain(type="torch.memory_format", format=str(value).removeprefix("torch."))
        if isinstance(value, np.generic) and isinstance(value.item(), _SCALARS):
            return Plain(type=value.dtype.name, value=value.item())
        if isinstance(value, np.ndarray):
            return _array(value)
        if isinstance(value, int):
            return scalar(int.__int__(value))
        if isinstance(value, float):
            return scalar(float.__float__(value))
        if isinstance(value, str):
            return scalar(str.__str__(value))
        return self._distributed(value, name)

    def _distributed(self, value: Any, name: str) -> Tree:
        dist = torch.distributed
        if not dist.is_available():
            return None
        if isinstance(value, dist.ProcessGroup):
            ranks, number = _group(value)
            return Plain(type="torch.ProcessGroup", group_ranks=ranks, group_id=number)
        if isinstance(value, dist.P2POp):
            return {
                "class_type": "torch.distributed.P2POp",
                "tensor": self.tree(value.tensor, f"{name}.tensor"),
                "op": getattr(value.op, "__name__", ""),
                "peer": int(value.peer),
                "tag": int(value.tag),
                "group_id": _group(value.group)[1] if value.group is not None else None,
            }
        if type(value).__qualname__.startswith("ReduceOp"):
            return Plain(type="torch.distributed.ReduceOp", value=f"RedOpType.{_operation(value)}")
        return None


def _items(value: Any, kind: type) -> list[Any] | Iterator[tuple[Any, Any]] | None:
    """The items of a sequence as a list, or the members of what has names; None for neither."""
    if isinstance(value, tuple):
        fields = getattr(kind, "_fields", None)
        if isinstance(fields, tuple) and len(fields) == tuple.__len__(value):
            return iter(zip(fields, tuple.__iter__(value)))
        return [*tuple.__iter__(value)]
    if isinstance(value, list):
        return [*list.__iter__(value)]
    if isinstance(value, (set, frozenset)):
        return [*(set if isinstance(value, set) else frozenset).__iter__(value)]  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return iter(list(dict.items(value) if isinstance(value, dict) else value.items()))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((field.name, getattr(value, field.name, None)) for field in dataclasses.fields(value))
    return None


def _stored(tensor: torch.Tensor) -> torch.Tensor | None:
    """What a tensor of an unusual layout stores, as a plain one; None where that cannot be had."""
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.layout is torch.sparse_coo:
        return compat.stored_values(tensor)
    if str(tensor.layout) == "torch._mkldnn":
        return tensor.to_dense()
    if tensor.is_nested and tensor.layout is torch.strided:
        parts = tensor.unbind()
        return torch.cat([part.reshape(-1) for part in parts]) if parts else None
    return tensor.values()


def _shape(tensor: torch.Tensor) -> list[int]:
    """The shape as far as there is one; a size that has no number yet is 0."""
    try:
        return [_size(size) for size in tensor.shape]
    except RuntimeError:  # a nested tensor, or a parameter that has no shape yet
        return [tensor.size(0)] if tensor.is_nested else []


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
    found = Plain(type="numpy.ndarray", dtype=str(value.dtype), shape=list(value.shape))
    four: list[Any] = [None] * 4
    if value.size and value.dtype.kind in "iuf":
        with np.errstate(all="ignore"):
            wide = value.astype(np.float64)
            norm = math.sqrt(float((wide * wide).sum()))
            four = [value.max().item(), value.min().item(), float(wide.mean()), norm]
    elif value.size and value.dtype.kind == "b":
        four = [bool(value.any()), bool(value.all()), None, None]
    found.update(zip(("Max", "Min", "Mean", "Norm"), four))
    return found
