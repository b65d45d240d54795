"""Conversion of tensors and other objects of torch into the leaves of a record (docs/formats.md#leaves)."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from probe_recording.api import Collector, TensorLeaf
from probe_recording.values.collector import Walk
from probe_recording.values.leaves import NOTHING, Four, Json, Plain, Save, StoredLeaf, Tree, quote

from probe_pytorch import compat
from probe_pytorch.gpu import checksum_on_gpu
from probe_pytorch.statistics import PLAIN, TENSOR, LeafEncoder, describe, measure
from probe_pytorch.storage.host_bytes import Checksum

_DTYPE_NAMES: dict[torch.dtype, str] = {}


class TorchCollector(Collector):
    """A converter of values into trees of leaves.

    Args:
        checksum: The checksum that leaves contain; None for no checksums.
        keep: A function that keeps the statistics on a device, with their leaf, until they are fetched.
        keep_checksum: The same for the CRC-32 of a tensor on a GPU, a 0-d int32; None to compute each checksum in
            host memory.
        wide: True to accumulate statistics on devices in float64.
        measured: False to compute no statistics; data are saved all the same.
        failed: A callback for exceptions of values: stage, name and exception.
        encodes: True to return the JSON of an ordinary tensor in place of its leaf, which is faster. No
            caller may then inspect or change the leaf.
    """

    tensor_types = PLAIN
    special_types = (torch.Tensor, torch.Size)
    type_keywords = frozenset({"dtype", "device"})

    def __init__(
        self,
        checksum: Checksum | None = None,
        keep: Callable[[torch.Tensor, Any], None] | None = None,
        keep_checksum: Callable[[torch.Tensor, TensorLeaf], None] | None = None,
        wide: bool = True,
        measured: bool = True,
        failed: Callable[[str, str, BaseException], None] | None = None,
        encodes: bool = False,
    ) -> None:
        super().__init__(failed, checksum, measured)
        self._keep = keep
        self._keep_checksum = keep_checksum
        self._wide = wide
        self._encodes = encodes and measured
        self._encoder = LeafEncoder(checksum)

    def arguments(self, values: tuple[Any, ...], prefix: str, save: Save | None) -> list[Tree]:
        """Return the trees of positional arguments or of outputs."""
        if save is None:  # names are needed for files only
            return [
                self.tensor(value, "", None) if type(value) in PLAIN else self.tree(value, "", None) for value in values
            ]
        return [self.tree(value, f"{prefix}.{i}", save) for i, value in enumerate(values)]

    def encode_groups(self, *groups: tuple[Any, ...] | Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the JSON of groups of values if no caller inspects leaves and the extension can make it."""
        if not self._encodes or self.slices:
            return None
        try:
            return self._encoder.encode_all(groups, self.type_keywords)
        except Exception:  # the trees are made one by one, where the error is reported with the value's name
            return None

    def leaves(self, values: Sequence[Any]) -> list[Tree]:
        """Return the trees of values whose data are not stored."""
        texts = self._encoder.encode_each(values) if self._encodes and not self.slices else [None] * len(values)
        return [self.tree(value, "", None) if text is None else text for value, text in zip(values, texts)]

    def keyword(self, key: str, value: Any, name: str, save: Save | None) -> Tree:
        """Return the tree of one keyword argument; ``dtype`` and ``device`` are recognized by the keyword."""
        if value is None or key not in ("dtype", "device"):
            return self.tree(value, name, save)
        if key == "dtype":
            return Plain(type="torch.dtype", value=str(value))
        if isinstance(value, torch.device):
            return Plain(type="torch.device", value=f"{value.type}:{value.index}")
        return Plain(type="torch.device", value=value) if type(value) in (int, str) else None

    # -- tensors ---------------------------------------------------------------------------

    def tensor(self, tensor: torch.Tensor, name: str, save: Save | None) -> Tree:
        """Return the leaf of a ``torch.Tensor`` or ``Parameter``."""
        if self._encodes and not self.slices and (text := self._encoder.encode(tensor)) is not None:
            return text if save is None else StoredLeaf(text, save(name, tensor))
        return self._encode_nested(tensor, name, save) if tensor.is_nested else self.leaf(tensor, name, save)

    def _encode_nested(self, tensor: torch.Tensor, name: str, save: Save | None) -> Tree:
        """Return the leaves of what a nested tensor stores: values, and the place of each part."""
        parts: dict[str, Tree] = {}
        for part, stored in compat.get_nested_parts(tensor).items():
            leaf = self.leaf(stored, f"{name}.{part}", save)
            if part == "values":
                leaf.requires_grad = tensor.requires_grad
                leaf.extra = {"layout": str(tensor.layout)}
            parts[part] = leaf
        return parts

    def leaf(self, tensor: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        """Return the leaf of a ``torch.Tensor`` or ``Parameter`` as an object."""
        if self.slices and _is_ordinary(tensor) and (index := self._select_index(tensor.shape)) is not None:
            leaf = self._measure_leaf(tensor.detach()[index], name, save)
            leaf.requires_grad = tensor.requires_grad
            return leaf
        return self._measure_leaf(tensor, name, save)

    def _measure_leaf(self, tensor: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        description = describe(tensor) if self._measured else None
        if description is not None:
            leaf = TensorLeaf(TENSOR, *description)
            if self._checksum is not None:
                leaf.checksum = self._checksum(tensor)
            if save is not None:
                leaf.data_name = save(name, tensor)
            return leaf
        dtype = tensor.dtype
        text = _DTYPE_NAMES.get(dtype)
        if text is None:
            text = _DTYPE_NAMES[dtype] = str(dtype)
        if _is_unusual(tensor):
            return self._complete_unusual(TensorLeaf(TENSOR, text, _read_shape(tensor), tensor.requires_grad), tensor)
        leaf = TensorLeaf(TENSOR, text, list(tensor.shape), tensor.requires_grad)
        if not (self._measured or save) or compat.is_transformed(tensor) or compat.is_freed(tensor):
            return leaf
        if self._measured:
            leaf.statistics = measure(tensor, self._keep, leaf, self._wide)
        if leaf.shape and not tensor.numel():
            return leaf
        if self._checksum is not None and not self._checksum_on_gpu(tensor, leaf):
            leaf.checksum = self._checksum(tensor)
        if save is not None:
            leaf.data_name = save(name, tensor)
        return leaf

    def _checksum_on_gpu(self, tensor: torch.Tensor, leaf: TensorLeaf) -> bool:
        """Compute the checksum where the tensor is, if possible; the leaf receives it when it is fetched."""
        if self._keep_checksum is None or not tensor.is_cuda:
            return False
        result = checksum_on_gpu(tensor.detach().resolve_conj().resolve_neg().contiguous())
        if result is None:
            return False
        self._keep_checksum(result, leaf)
        return True

    def _complete_unusual(self, leaf: TensorLeaf, tensor: torch.Tensor) -> TensorLeaf:
        """Add to a leaf the layout of a tensor and the statistics of its stored or dequantised values."""
        if tensor.is_meta or not self._measured:
            return leaf
        leaf.extra = {"layout": "quantized" if tensor.is_quantized else str(tensor.layout)}
        inner = _convert_to_plain(tensor.detach())
        if inner is not None and not compat.is_freed(inner):
            leaf.statistics = measure(inner, self._keep, leaf, self._wide)
        return leaf

    def special(self, tensor: Any, name: str, save: Save | None) -> Tree:
        """Return the leaf of a tensor subclass, measured by its inner tensor if it is known to hold one."""
        kind = type(tensor)
        if isinstance(tensor, torch.Size):
            return Plain(type="torch.Size", value=[_read_size(item) for item in tensor])
        if compat.is_fake(tensor):
            return TensorLeaf("FakeTensor", str(tensor.dtype), _read_shape(tensor), tensor.requires_grad)
        with compat.disable_functions():
            local = getattr(tensor, "_local_tensor", None)
            if isinstance(local, torch.Tensor) and hasattr(tensor, "placements"):
                return self._collect_shard(tensor, local, name, save)
            leaf = TensorLeaf(kind.__name__, str(tensor.dtype), _read_shape(tensor), tensor.requires_grad)
            if kind.__name__ == "AsyncCollectiveTensor":
                return leaf  # its values exist only after its wait, which the recorder must not call
            if compat.is_jagged(tensor):
                return self._encode_nested(tensor, name, save)
            if compat.is_wrapper(tensor):
                return leaf
            with compat.disable_subclasses():
                inner = self.leaf(tensor.detach().as_subclass(torch.Tensor), name, save)
            inner.requires_grad = tensor.requires_grad
            return inner

    def _collect_shard(self, tensor: Any, local: torch.Tensor, name: str, save: Save | None) -> TensorLeaf:
        """Return the leaf of a DTensor: its local shard, with the placement of the whole tensor."""
        leaf = self.leaf(local, name, save) if type(local) in PLAIN else self.tree(local, name, save)
        if not isinstance(leaf, TensorLeaf):
            leaf = TensorLeaf(TENSOR, str(tensor.dtype), _read_shape(tensor), False)
        leaf.kind = "torch.distributed.tensor.DTensor"
        leaf.requires_grad = tensor.requires_grad
        leaf.extra = {
            "device_mesh": _describe_mesh(getattr(tensor, "device_mesh", None)),
            "placements": [str(placement) for placement in getattr(tensor, "placements", ())],
            "global_shape": _read_shape(tensor),
        }
        return leaf

    # -- other objects ---------------------------------------------------------------------

    def _measure_array(self, value: np.ndarray[Any, Any]) -> Four:
        """Return the statistics of a numpy array."""
        if value.size and value.dtype.kind in "iuf":
            with np.errstate(all="ignore"):
                wide = value.astype(np.float64)
                norm = math.sqrt(float((wide * wide).sum()))
                return value.max().item(), value.min().item(), float(wide.mean()), norm
        if value.size and value.dtype.kind == "b":
            return bool(value.any()), bool(value.all()), None, None
        return NOTHING

    def _convert_to_storable(self, value: np.ndarray[Any, Any]) -> torch.Tensor | None:
        """Return a tensor of the elements of a numpy array; None if torch has no such dtype."""
        usable = value if value.flags.writeable and value.flags.c_contiguous else value.copy()
        try:
            return torch.from_numpy(usable)
        except TypeError:
            return None

    def other(self, value: Any, name: str, walk: Walk) -> Tree:
        """Return the leaf of another object of torch, or None for null."""
        # a positional dtype or device is null, as in msprobe's runs: null and a leaf would not pair
        if isinstance(value, torch.memory_format):
            return Plain(type="torch.memory_format", format=str(value).removeprefix("torch."))
        dist = torch.distributed
        if not dist.is_available():
            return None
        if isinstance(value, dist.ProcessGroup):
            ranks, number = _group(value)
            return Plain(type="torch.ProcessGroup", group_ranks=ranks, group_id=number)
        if isinstance(value, dist.P2POp):
            group = value.group or dist.group.WORLD  # before torch 2.2, None is the default group
            return {
                "class_type": quote("torch.distributed.P2POp"),
                "tensor": walk.tree(value.tensor, f"{name}.tensor"),
                "op": quote(getattr(value.op, "__name__", "")),
                "peer": int(value.peer),
                "tag": int(value.tag),
                "group_id": None if group is None else quote(_group(group)[1]),
            }
        if type(value).__qualname__.startswith("ReduceOp"):
            return Plain(type="torch.distributed.ReduceOp", value=f"RedOpType.{_name_operation(value)}")
        return None


def _is_unusual(tensor: torch.Tensor) -> bool:
    return tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta


def _is_ordinary(tensor: torch.Tensor) -> bool:
    return not (_is_unusual(tensor) or compat.is_transformed(tensor) or compat.is_freed(tensor))


def _convert_to_plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the stored values of a tensor of an unusual layout as a plain tensor, or None."""
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.layout is torch.sparse_coo:
        return compat.get_stored_values(tensor)
    if str(tensor.layout) == "torch._mkldnn":
        return tensor.to_dense()
    return tensor.values()


def _read_shape(tensor: torch.Tensor) -> list[int]:
    """Return the shape where it is known; symbolic sizes are 0."""
    try:
        return [_read_size(size) for size in tensor.shape]
    except RuntimeError:  # a nested tensor, or a parameter of a lazy module
        return [tensor.size(0)] if tensor.is_nested else []


def _read_size(size: Any) -> int:
    """Return a size as a number, 0 for a symbolic one."""
    try:
        return int(size)
    except Exception:
        return 0


def _describe_mesh(mesh: Any) -> Json:
    inner = getattr(mesh, "mesh", None)
    return inner.tolist() if isinstance(inner, torch.Tensor) else None


def _group(group: Any) -> tuple[list[int], str]:
    ranks = list(torch.distributed.get_process_group_ranks(group))
    return ranks, str(zlib.crc32(str(ranks).encode()))


def _name_operation(value: Any) -> str:
    text = str(getattr(value, "op", value))
    return text.rpartition(".")[2].rstrip(">")
