"""What a call gave out, as the core judges it: tensors as arrays, all else as plain values."""

from __future__ import annotations

from typing import Any

import torch
from probe_precheck import Array


def plain(value: Any) -> Any:
    """``value`` without torch."""
    if isinstance(value, torch.Tensor):
        return array_of(value)
    if isinstance(value, torch.Size):
        return [int(size) for size in value]
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    return str(value)


def array_of(tensor: torch.Tensor) -> Array:
    """The values of a tensor on the CPU, with the text of its dtype; bfloat16 and float8 come as float32."""
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
