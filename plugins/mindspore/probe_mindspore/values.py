"""The leaves of a record: what tensors and dtypes of MindSpore become."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
import probe_recording
from mindspore import Tensor
from probe_recording import Array, Plain, Save, TensorLeaf, Tree, Walk, measure

TENSOR = "mindspore.Tensor"


def widened(bits: Array) -> Array:
    """bfloat16, given as its 16 bits, as float32: exact."""
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def array_of(tensor: Tensor) -> Array:
    """The values of ``tensor`` in host memory; they may share its memory. bfloat16 comes as its 16 bits."""
    if tensor.dtype != mindspore.bfloat16:
        found: Array = tensor.asnumpy()
        return found
    try:
        raw: Array = np.ascontiguousarray(tensor.asnumpy()).view(np.uint16)
        return raw
    except TypeError:  # MindSpore 2.10 with numpy 2
        bits: Array = np.ascontiguousarray(tensor.float().asnumpy()).view(np.uint32)
        high: Array = (bits >> np.uint32(16)).astype(np.uint16)
        return high


def values_of(tensor: Tensor) -> Array:
    """The values of ``tensor`` in host memory, bfloat16 as float32; they may share its memory."""
    array = array_of(tensor)
    return widened(array) if tensor.dtype == mindspore.bfloat16 else array


class Collector(probe_recording.Collector):
    """Turns values into trees of leaves; checksums are those of arrays."""

    known = (Tensor,)

    def tensor(self, tensor: Tensor, name: str, save: Save | None) -> TensorLeaf:
        """The leaf of a tensor."""
        leaf = TensorLeaf(TENSOR, str(tensor.dtype), [int(size) for size in tensor.shape], None)
        if not self._measured or 0 in leaf.shape or getattr(tensor, "has_init", False):
            return leaf
        array = array_of(tensor)
        values = widened(array) if leaf.dtype == "BFloat16" else array
        leaf.statistics = measure(values)
        if self._checksum is not None:
            leaf.checksum = self._checksum(array)
        if save is not None:
            leaf.data_name = save(name, values)
        return leaf

    def other(self, value: Any, name: str, walk: Walk) -> Tree:
        """The leaf of a dtype."""
        return Plain(type="mindspore.dtype", value=str(value)) if isinstance(value, mindspore.Type) else None
