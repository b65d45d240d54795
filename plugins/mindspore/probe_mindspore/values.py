"""Leaves of a record made from tensors and dtypes of MindSpore (docs/formats.md#leaves)."""

from __future__ import annotations

from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor
from probe_recording.api import Collector, TensorLeaf, measure
from probe_recording.values.arrays import Array
from probe_recording.values.collector import Walk
from probe_recording.values.leaves import Plain, Save, Tree

TENSOR = "mindspore.Tensor"
"""Type of a tensor's leaf."""


def widen_bfloat16(bits: Array) -> Array:
    """Return bfloat16 numbers, given as their 16 bits, as float32, which is exact."""
    wide: Array = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return wide


def convert_to_array(tensor: Tensor) -> Array:
    """Return the values of ``tensor`` in host memory, which they may share with it; bfloat16 as bits."""
    if tensor.dtype != mindspore.bfloat16:
        values: Array = tensor.asnumpy()
        return values
    try:
        raw: Array = np.ascontiguousarray(tensor.asnumpy()).view(np.uint16)
        return raw
    except TypeError:  # MindSpore 2.10 with numpy 2
        bits: Array = np.ascontiguousarray(tensor.float().asnumpy()).view(np.uint32)
        high: Array = (bits >> np.uint32(16)).astype(np.uint16)
        return high


def read_values(tensor: Tensor) -> Array:
    """Return the values of ``tensor`` in host memory, which they may share with it; bfloat16 as float32."""
    array = convert_to_array(tensor)
    return widen_bfloat16(array) if tensor.dtype == mindspore.bfloat16 else array


class MindSporeCollector(Collector):
    """Collector that turns values into trees of leaves; checksums are computed from arrays."""

    special_types = (Tensor,)

    def tensor(self, tensor: Tensor, name: str, save: Save | None) -> TensorLeaf:
        """Return the leaf of a tensor.

        Args:
            tensor: The tensor.
            name: The name of its file.
            save: Saves the values; None to save nothing.
        """
        leaf = TensorLeaf(TENSOR, str(tensor.dtype), [int(size) for size in tensor.shape], None)
        if not (self._measured or save) or 0 in leaf.shape or getattr(tensor, "has_init", False):
            return leaf
        array = convert_to_array(tensor)
        if (index := self._select_index(leaf.shape)) is not None:
            array = np.ascontiguousarray(array[index])
            leaf.shape = list(array.shape)
            if not array.size:
                return leaf
        values = widen_bfloat16(array) if leaf.dtype == "BFloat16" else array
        if self._measured:
            leaf.statistics = measure(values)
        if self._checksum is not None:
            leaf.checksum = self._checksum(array)
        if save is not None:
            leaf.data_name = save(name, values)
        return leaf

    def other(self, value: Any, name: str, walk: Walk) -> Tree:
        """Return the leaf of a dtype; None for any other value."""
        return Plain(type="mindspore.dtype", value=str(value)) if isinstance(value, mindspore.Type) else None
