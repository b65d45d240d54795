"""Tensors of MindSpore as NumPy arrays, and their comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor

from probe_watch.free_benchmark.arguments import tensors_in
from probe_watch.free_benchmark.array_comparison import agrees_with_cpu, norm_ratio
from probe_watch.free_benchmark.array_perturbations import Array
from probe_watch.free_benchmark.outcome import Difference, Outcome
from probe_watch.free_benchmark.thresholds import CpuLimits

FLOATING = ("float16", "bfloat16", "float32", "float64")
_SPARSE = (mindspore.COOTensor, mindspore.CSRTensor, mindspore.RowTensor)


def dtype_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype as in the thresholds, such as ``float32``."""
    return str(tensor.dtype).lower()


def is_floating(tensor: Tensor) -> bool:
    """Return True for a tensor of floating numbers."""
    return dtype_name(tensor) in FLOATING


def mindspore_tensors_in(value: Any) -> Iterator[Any]:
    """Yield the tensors in an argument, in order, with sparse tensors."""
    return tensors_in(value, (Tensor, *_SPARSE))


def is_supported(tensor: Any) -> bool:
    """Return True for a dense tensor with values."""
    return isinstance(tensor, Tensor) and not getattr(tensor, "has_init", False)


def array_of(tensor: Tensor) -> Array:
    """Return a copy of the values of a tensor; those of bfloat16 as float32."""
    if tensor.dtype == mindspore.bfloat16:
        tensor = tensor.astype(mindspore.float32)
    return np.array(tensor.asnumpy(), order="C", copy=True)


def tensor_of(array: Array, like: Tensor) -> Any:
    """Return a tensor, or Parameter, with the values of an array, outside of the graph.

    Args:
        array: The values, from ``array_of``.
        like: A tensor of the dtype and kind.
    """
    values = Tensor(array)
    if like.dtype == mindspore.bfloat16 and array.dtype == np.float32:
        values = values.astype(mindspore.bfloat16)
    if isinstance(like, Parameter):
        return Parameter(values, name=like.name, requires_grad=False)
    return values


class MindSporeComparison:
    """The comparison of tensors of MindSpore, in NumPy."""

    tensor_type: type = Tensor

    def dtype_name(self, tensor: Tensor) -> str:
        """Return the name of a tensor's dtype as in the thresholds, such as ``float32``."""
        return dtype_name(tensor)

    def is_inexact(self, tensor: Tensor) -> bool:
        """Return True for floating and complex tensors."""
        return is_floating(tensor) or dtype_name(tensor).startswith("complex")

    def compare_on_device(self, original: Tensor, changed: Tensor, floor: float, limit: float) -> Outcome:
        """Return the outcome of the comparison by ratios."""
        name = dtype_name(changed)
        ratio = norm_ratio(array_of(original), array_of(changed), floor, name)
        if isinstance(ratio, Difference):
            return Outcome(False, str(original.dtype), _shape(original), ratio)
        return Outcome(ratio <= limit, str(original.dtype), _shape(original), Difference.RATIO, ratio)

    def compare_with_cpu(self, original: Tensor, reference: Tensor, limits: CpuLimits) -> Outcome:
        """Return the outcome of the comparison with the result of the CPU."""
        consistent = agrees_with_cpu(array_of(original), array_of(reference), limits)
        return Outcome(consistent, str(original.dtype), _shape(original))


def _shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
