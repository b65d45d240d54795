"""Files of tensors, by torch's private API.

As in ``compat.py``, each use has a test that names the version of torch.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch


def convert_to_savable(tensor: torch.Tensor) -> Any:
    """Return what ``torch.save`` saves in place of a tensor: torch 2.1 cannot save eight-bit floats.

    The file is as torch 2.2 and later write it.
    """
    private: Any = torch._utils
    name = _rebuild_tensor_v3.__name__
    is_old = getattr(private, name, _rebuild_tensor_v3) is _rebuild_tensor_v3
    if not is_old or tensor.dtype in torch.storage._dtype_to_storage_type_map():
        return tensor
    _rebuild_tensor_v3.__module__ = private.__name__  # a pickle names a function by its place
    setattr(private, name, _rebuild_tensor_v3)
    return _SavedLater(tensor)


class _SavedLater:
    """A stand-in for a tensor whose pickle is that of the tensor in a later torch."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __reduce__(self) -> tuple[Any, ...]:
        tensor = self._tensor
        place = tensor.untyped_storage(), tensor.storage_offset(), tuple(tensor.size()), tensor.stride()
        return _rebuild_tensor_v3, (*place, tensor.requires_grad, OrderedDict(), tensor.dtype)


def _rebuild_tensor_v3(
    storage: Any, offset: int, size: Any, stride: Any, requires_grad: bool, hooks: Any, dtype: torch.dtype
) -> torch.Tensor:
    tensor = torch.empty((0,), dtype=dtype, device=storage.device)
    return tensor.set_(storage._untyped_storage, offset, size, stride).requires_grad_(requires_grad)
