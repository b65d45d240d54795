"""Conversion of a call's outputs for judging: tensors become arrays, other objects plain values."""

from __future__ import annotations

from typing import Any

import torch
from probe_precheck.api import Array
from probe_precheck.model import convert_output


def convert_to_arrays(value: Any) -> Any:
    """Return ``value`` without any object of torch."""
    return convert_output(value, lambda item: convert_to_array(item) if isinstance(item, torch.Tensor) else str(item))


def convert_to_array(tensor: torch.Tensor) -> Array:
    """Return a tensor's values with the name of its dtype; bfloat16 and float8 are widened to float32."""
    dtype = str(tensor.dtype)
    tensor = tensor.detach()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    tensor = tensor.resolve_conj().resolve_neg().cpu()
    if tensor.dtype is torch.bfloat16 or (tensor.is_floating_point() and tensor.dtype.itemsize == 1):
        tensor = tensor.float()
    return Array(tensor.contiguous().numpy(), dtype)
