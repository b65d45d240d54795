"""Tensors of MindSpore as NumPy arrays, and their comparison."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mindspore
import numpy as np
from mindspore import Parameter, Tensor

from probe_watch.free_benchmark.arguments import iterate_tensors
from probe_watch.free_benchmark.array_comparison import compute_norm_ratio, is_close_to_cpu
from probe_watch.free_benchmark.array_perturbations import Array
from probe_watch.free_benchmark.outcome import OutputComparison, OutputDifference
from probe_watch.free_benchmark.thresholds import CpuLimits

FLOAT_DTYPES = ("float16", "bfloat16", "float32", "float64")
_SPARSE_TYPES = (mindspore.COOTensor, mindspore.CSRTensor, mindspore.RowTensor)


def format_dtype(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype as in the thresholds, such as ``float32``."""
    return str(tensor.dtype).lower()


def is_floating(tensor: Tensor) -> bool:
    """Return True for a tensor of floating numbers."""
    return format_dtype(tensor) in FLOAT_DTYPES


def iterate_mindspore_tensors(value: Any) -> Iterator[Any]:
    """Yield the tensors in an argument, in order, with sparse tensors."""
    return iterate_tensors(value, (Tensor, *_SPARSE_TYPES))


def is_supported(tensor: Any) -> bool:
    """Return True for a dense tensor with values."""
    return isinstance(tensor, Tensor) and not getattr(tensor, "has_init", False)


def copy_to_array(tensor: Tensor) -> Array:
    """Return a copy of the values of a tensor; those of bfloat16 as float32."""
    if tensor.dtype == mindspore.bfloat16:
        tensor = tensor.astype(mindspore.float32)
    return np.array(tensor.asnumpy(), order="C", copy=True)


def create_tensor(array: Array, like: Tensor) -> Any:
    """Return a tensor, or Parameter, with the values of an array, outside of the graph.

    Args:
        array: The values, from ``copy_to_array``.
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

    def name_dtype(self, tensor: Tensor) -> str:
        """Return the name of a tensor's dtype as in the thresholds, such as ``float32``."""
        return format_dtype(tensor)

    def is_inexact(self, tensor: Tensor) -> bool:
        """Return True for floating and complex tensors."""
        return is_floating(tensor) or format_dtype(tensor).startswith("complex")

    def compare_on_device(self, original: Tensor, changed: Tensor, floor: float, limit: float) -> OutputComparison:
        """Return the outcome of the comparison by ratios."""
        name = format_dtype(changed)
        ratio = compute_norm_ratio(copy_to_array(original), copy_to_array(changed), floor, name)
        if isinstance(ratio, OutputDifference):
            return OutputComparison(False, str(original.dtype), _format_shape(original), ratio)
        return OutputComparison(
            ratio <= limit, str(original.dtype), _format_shape(original), OutputDifference.RATIO, ratio
        )

    def compare_with_cpu(self, original: Tensor, reference: Tensor, limits: CpuLimits) -> OutputComparison:
        """Return the outcome of the comparison with the result of the CPU."""
        consistent = is_close_to_cpu(copy_to_array(original), copy_to_array(reference), limits)
        return OutputComparison(consistent, str(original.dtype), _format_shape(original))


def _format_shape(tensor: Tensor) -> str:
    return str(tuple(tensor.shape))
