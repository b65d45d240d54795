"""Measurement of tensors by torch: the operations of the monitor, with one transfer per device and step."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import torch

BLOCK_ELEMENTS = 1 << 16
"""Elements of a block that is widened to float64 at once in host memory, so that it stays in the cache."""
MAX_CACHED_VIEWS = 4096
"""Number of shapes whose views of the buffer are kept."""
SMALLEST_SQUARED = 1e-150
"""Norms of float64 below this come from squares that float64 cannot represent with full precision."""
DEVICES_WITHOUT_FLOAT64 = frozenset({"mps"})
"""Types of devices that have no float64; figures are computed in float32 there."""

Scalar = Union[float, torch.Tensor]
"""A number, or a tensor without dimensions whose value is not transferred yet."""


@dataclass(slots=True)
class TensorMeasurement:
    """The results of the operations on a tensor.

    Attributes:
        values: The results; numbers after ``resolve``.
        shape: The shape of the tensor.
        dtype: The name of its dtype.
    """

    values: list[Scalar]
    shape: tuple[int, ...]
    dtype: str


def get_local_shard(tensor: torch.Tensor) -> torch.Tensor:
    """Return the shard of a distributed tensor that this process holds, or the tensor itself."""
    to_local = getattr(tensor, "to_local", None)
    local: torch.Tensor = tensor if to_local is None else to_local()
    return local


def measure(tensor: torch.Tensor, operations: Sequence[str], epsilon: float) -> TensorMeasurement:
    """Return the results of operations on a tensor.

    - ``norm`` is the L2 norm, and ``mean`` the mean; both are summed in float64.
    - ``min`` and ``max`` are NaN if there is a NaN, or no element.
    - ``zeros`` is the share of elements below ``epsilon`` in size; NaN if there is no element.
    - ``nans`` is the number of elements that are NaN.

    The norm of an empty tensor is 0, its mean NaN. Elements of bool count as 0 and 1. A complex tensor has
    the norm and the zeros of its absolute values; mean, min and max are NaN. An operation that torch does not
    have for a dtype gives NaN.

    Args:
        tensor: The tensor.
        operations: Names of operations.
        epsilon: The size below which an element counts as zero.
    """
    tensor = get_local_shard(tensor.detach())
    shape, dtype = tuple(tensor.shape), str(tensor.dtype)
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    return TensorMeasurement([_apply_operation(name, tensor, epsilon) for name in operations], shape, dtype)


def _apply_operation(name: str, tensor: torch.Tensor, epsilon: float) -> Scalar:
    try:
        return _OPERATIONS[name](tensor, epsilon)
    except (RuntimeError, TypeError):  # an operation that does not exist for a dtype
        return math.nan


def _compute_norm(tensor: torch.Tensor, _: float) -> Scalar:
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_cpu:
        wide = torch.float32 if tensor.device.type in DEVICES_WITHOUT_FLOAT64 else torch.float64
        return torch.linalg.vector_norm(tensor.to(wide))  # type: ignore[no-any-return]
    if tensor.dtype is torch.float64:
        return _compute_scaled_norm(tensor)
    return _compute_host_norm(tensor)


class _Buffer(threading.local):
    """Memory for elements in float64 that is used again, and views of it."""

    def __init__(self) -> None:
        self._memory = torch.empty(BLOCK_ELEMENTS, dtype=torch.float64)
        self._views: dict[torch.Size, torch.Tensor] = {}

    def view(self, shape: torch.Size) -> torch.Tensor:
        """Return a view of a shape with at most ``BLOCK_ELEMENTS`` elements."""
        view = self._views.get(shape)
        if view is None:
            if len(self._views) >= MAX_CACHED_VIEWS:
                self._views.clear()
            view = self._views[shape] = self._memory[: shape.numel()].view(shape)
        return view


_buffer = _Buffer()


def _compute_host_norm(tensor: torch.Tensor) -> torch.Tensor:
    """Return the norm of a tensor in host memory, widened block by block."""
    if tensor.numel() <= BLOCK_ELEMENTS:
        wide = _buffer.view(tensor.shape)
        wide.copy_(tensor)
        return torch.linalg.vector_norm(wide)  # type: ignore[no-any-return]
    blocks = tensor.reshape(-1).split(BLOCK_ELEMENTS)  # type: ignore[no-untyped-call]
    return torch.linalg.vector_norm(torch.stack([_compute_host_norm(block) for block in blocks]))  # type: ignore[no-any-return]


def _compute_scaled_norm(tensor: torch.Tensor) -> float:
    """Return the norm of a tensor of float64, scaled if squares leave the range of float64."""
    norm = float(torch.linalg.vector_norm(tensor))
    if (math.isinf(norm) or norm < SMALLEST_SQUARED) and tensor.numel():
        largest = float(tensor.abs().max())
        if largest and math.isfinite(largest):
            return largest * float(torch.linalg.vector_norm(tensor / largest))
    return norm


def _compute_mean(tensor: torch.Tensor, _: float) -> Scalar:
    if tensor.is_complex():
        return math.nan
    wide = torch.float32 if tensor.device.type in DEVICES_WITHOUT_FLOAT64 else torch.float64
    return tensor.mean(dtype=wide)


def _compute_zeros(tensor: torch.Tensor, epsilon: float) -> Scalar:
    count = tensor.numel()
    if not count:
        return math.nan
    if tensor.dtype is torch.bool:
        return _compute_share(~tensor, count)
    is_half = tensor.dtype in (torch.float16, torch.bfloat16)  # which may round epsilon to 0
    return _compute_share((tensor.float() if is_half else tensor).abs() < epsilon, count)


def _compute_share(marks: torch.Tensor, count: int) -> Scalar:
    if marks.device.type in DEVICES_WITHOUT_FLOAT64:
        return marks.sum() / count
    return marks.sum().to(torch.float64) / count


_OPERATIONS: Mapping[str, Callable[[torch.Tensor, float], Scalar]] = {
    "norm": _compute_norm,
    "min": lambda tensor, _: tensor.min(),
    "max": lambda tensor, _: tensor.max(),
    "mean": _compute_mean,
    "zeros": _compute_zeros,
    "nans": lambda tensor, _: torch.isnan(tensor).sum(),
}


def resolve(measurements: Iterable[TensorMeasurement]) -> None:
    """Replace all tensors among the results by numbers, with one transfer per device."""
    devices: dict[Any, dict[torch.dtype, list[tuple[list[Scalar], int]]]] = {}
    for each in measurements:
        for index, value in enumerate(each.values):
            if isinstance(value, torch.Tensor):
                dtypes = devices.setdefault(value.device, {})
                dtypes.setdefault(value.dtype, []).append((each.values, index))
    for device, dtypes in devices.items():
        wide = torch.float32 if device.type in DEVICES_WITHOUT_FLOAT64 else torch.float64
        stacks: list[Any] = [[values[index] for values, index in listed] for listed in dtypes.values()]
        numbers = torch.cat([torch.stack(stack).to(wide) for stack in stacks]).tolist()
        places = (place for listed in dtypes.values() for place in listed)
        for (values, index), number in zip(places, numbers):
            values[index] = number
