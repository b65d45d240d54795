"""Maximum, minimum, mean and norm of a tensor, in float64 (docs/formats.md#statistics).

On the CPU the compiled extension ``_tally`` computes all four in one pass, and on a GPU a kernel does. Otherwise
torch computes them in three reductions. Results on other devices stay there until ``read_back`` of the session
fetches all of them together.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from probe_recording.values.leaves import NOTHING, Four

from probe_pytorch.compat import is_dense, is_transformed
from probe_pytorch.gpu import measure_on_gpu
from probe_pytorch.storage.host_bytes import Checksum

try:
    from probe_pytorch import _tally
except ImportError:  # there was no C++ compiler at installation
    _tally = None  # type: ignore[assignment]

NAN = float("nan")

PLAIN = (torch.Tensor, torch.nn.Parameter)
"""The classes of ordinary tensors."""

TENSOR = "torch.Tensor"
"""The field ``type`` of the leaf of a tensor."""

_DTYPE_CODES = {
    torch.float32: 0, torch.float64: 1, torch.float16: 2, torch.bfloat16: 3,
    torch.int64: 4, torch.int32: 5, torch.int16: 6, torch.int8: 7, torch.uint8: 8,
}  # fmt: skip
_NAMED_CODES = {dtype: (str(dtype), code) for dtype, code in {**_DTYPE_CODES, torch.bool: 9}.items()}
_LEAF_PREFIXES = {
    dtype: (f'{{"type": "{TENSOR}", "dtype": "{name}", "shape": ', code) for dtype, (name, code) in _NAMED_CODES.items()
}
"""The JSON of a leaf up to its shape, and the code, of each dtype."""
_LEAF_ARGUMENTS = (_LEAF_PREFIXES, torch.strided, is_transformed)
_EIGHT_BIT_DTYPES = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    if hasattr(torch, name)
)
_WIDE_UNSIGNED_DTYPES = tuple(
    getattr(torch, name)
    for name in ("uint16", "uint32", "uint64")
    if hasattr(torch, name)  # since torch 2.3
)


def describe(tensor: torch.Tensor) -> tuple[str, list[int], bool, Four] | None:
    """Return dtype name, shape, ``requires_grad`` and statistics of an ordinary tensor in host memory.

    The compiled extension reads all of them in one call, which takes a quarter of the time of reading them
    one by one. The statistics are those of ``measure``.

    Returns:
        None for any other tensor, such as one on a device, sparse or empty, and if the extension could not
        be built.
    """
    return None if _tally is None else _tally.describe(tensor, _NAMED_CODES, torch.strided, is_transformed)


class LeafEncoder:
    """An encoder of the leaves of ordinary tensors in host memory, as ``describe``, as JSON.

    Args:
        checksum: The checksum that leaves contain; None for none. If it is unique, the statistics of tensors with the
            same checksum are computed once, because a checksum takes less time than statistics.
    """

    def __init__(self, checksum: Checksum | None = None) -> None:
        cached: dict[tuple[str, str, int], str] | None = {} if checksum is not None and checksum.is_unique else None
        self._arguments = (*_LEAF_ARGUMENTS, None if checksum is None else checksum.hash_bytes, cached)

    def encode(self, tensor: torch.Tensor) -> str | None:
        """Return the JSON of the leaf of an ordinary tensor; None for any other tensor."""
        return None if _tally is None else _tally.encode(tensor, *self._arguments)

    def encode_all(
        self, groups: tuple[tuple[Any, ...] | Mapping[str, Any], ...], by_key: frozenset[str]
    ) -> tuple[str, ...] | None:
        """Return the JSON of each group of values if all tensors in them are ordinary.

        A value that occurs several times in one call is measured once.

        Args:
            groups: Tuples, lists or dicts of tensors, numbers, texts, None, and lists and tuples of these.
            by_key: Keys whose values are not encoded here unless they are None.

        Returns:
            None if a group holds anything else, and if the extension could not be built.
        """
        return None if _tally is None else _tally.encode_all(groups, *self._arguments, PLAIN, by_key)

    def encode_each(self, values: Sequence[Any]) -> list[str | None]:
        """Return the JSON of the leaf of each ordinary tensor; None for any other value."""
        return [None] * len(values) if _tally is None else _tally.encode_each(values, *self._arguments, PLAIN)


def measure(tensor: torch.Tensor, keep: Callable[[torch.Tensor, Any], None] | None = None, target: Any = None,
            wide: bool = True) -> Four:  # fmt: skip
    """Return Max, Min, Mean and Norm of a tensor.

    A NaN among the elements makes all four NaN. Complex tensors are measured by their absolute values and
    have no norm. A bool tensor has ``any`` as its maximum and ``all`` as its minimum. A 0-d tensor gives its
    value four times; an empty, meta or fake tensor gives None.

    Args:
        tensor: A plain tensor with a storage.
        keep: For tensors on other devices: a function that keeps the results, a tensor of shape (4,), with
            ``target`` until they are fetched. The four values returned are then None.
        target: The second argument of ``keep``.
        wide: True to accumulate in float64 on every device, False in float32 on devices where float64 may be
            slow or missing: all but CPUs and GPUs.

    Returns:
        Max, Min, Mean, Norm; of whole numbers as int, int, float, float.
    """
    count = tensor.numel()
    if not count or tensor.is_meta:
        return NOTHING
    dtype = tensor.dtype
    if tensor.is_cpu:
        if not tensor.ndim:
            return _compute_single(tensor)
        code = _DTYPE_CODES.get(dtype)
        if _tally is None or code is None or tensor.is_neg():
            return _compute_on_cpu(tensor.detach())
        if not tensor.is_contiguous() and not is_dense(tensor):
            tensor = tensor.detach().contiguous()
        four: Four = _tally.measure(tensor.data_ptr(), count, code)
        return four
    results = _measure_on_device(tensor.detach(), wide)
    if keep is None:
        return decode_results(results.tolist(), dtype)
    keep(results, target)
    return NOTHING


def decode_results(values: Sequence[Any], dtype: torch.dtype) -> Four:
    """Return the four statistics of a tensor of ``dtype`` from the values of ``_reduce``."""
    high, low, mean, norm = values
    if dtype is torch.int64:
        return high, low, *struct.unpack("=dd", struct.pack("=qq", mean, norm))
    if dtype is torch.bool:
        return bool(high), bool(low), None, None
    if dtype.is_complex:
        return high, low, mean, None
    if not dtype.is_floating_point:
        return int(high), int(low), mean, norm
    return high, low, mean, norm


def _compute_single(tensor: torch.Tensor) -> Four:
    try:
        value = tensor.detach().item()
    except RuntimeError:  # before torch 2.13, for types that torch can only store
        return NOTHING
    if isinstance(value, bool):
        return value, value, None, None
    if isinstance(value, complex):
        return abs(value), abs(value), abs(value), None
    return value, value, value, value


def _compute_on_cpu(tensor: torch.Tensor) -> Four:
    try:
        return _compute_by_torch(tensor)
    except RuntimeError:  # dtypes that torch can store but not compute with
        return NOTHING


def _compute_by_torch(tensor: torch.Tensor) -> Four:
    dtype = tensor.dtype
    if dtype is torch.bool:
        return bool(tensor.any()), bool(tensor.all()), None, None
    if dtype.is_complex:
        return decode_results(_reduce(tensor, torch.float64).tolist(), dtype)
    if dtype in _EIGHT_BIT_DTYPES or dtype is torch.float16:  # of which torch 2.1 has no aminmax on a CPU
        tensor = tensor.float()
    if tensor.dtype.is_floating_point:
        low, high = torch.aminmax(tensor)
        mean = tensor.mean(dtype=torch.float64).item()
        return high.item(), low.item(), mean, _compute_norm(tensor, high.item(), low.item())
    if dtype in _WIDE_UNSIGNED_DTYPES:
        array = tensor.contiguous().numpy()
        most, least = int(array.max()), int(array.min())
    else:
        low, high = torch.aminmax(tensor)
        most, least = int(high), int(low)
    double = tensor.double()
    return most, least, double.mean().item(), torch.linalg.vector_norm(double).item()


def _compute_norm(tensor: torch.Tensor, high: float, low: float) -> float:
    """Return the norm; scale the elements first if their squares leave the range of float64."""
    norm = float(torch.linalg.vector_norm(tensor, dtype=torch.float64))
    largest = max(abs(high), abs(low))
    if math.isfinite(largest) and largest and (math.isinf(norm) or largest < 1e-150):
        return largest * float(torch.linalg.vector_norm(tensor.double() / largest))
    return norm


def _measure_on_device(tensor: torch.Tensor, wide: bool) -> torch.Tensor:
    """Return the statistics of a tensor that is not in host memory, in the form of ``_reduce``."""
    if not tensor.is_cuda:
        return _reduce(tensor, torch.float64 if wide else torch.float32)
    results = None
    if tensor.ndim and not tensor.is_neg():
        results = measure_on_gpu(tensor if tensor.is_contiguous() or is_dense(tensor) else tensor.contiguous())
    return _reduce(tensor, torch.float64) if results is None else results


def _reduce(tensor: torch.Tensor, wide: torch.dtype) -> torch.Tensor:
    """Return Max, Min, Mean and Norm as one tensor of shape (4,) on the device of ``tensor``.

    float64 and integers are always accumulated in float64, because float32 cannot hold them. The result for
    int64, which float64 cannot hold either, is of int64: maximum, minimum, and the bits of mean and norm.
    """
    if tensor.dtype is torch.int64:
        low, high = torch.aminmax(tensor)
        double = tensor.to(torch.float64)
        mean, norm = (double.mean(), torch.linalg.vector_norm(double)) if tensor.ndim else (double, double)
        return torch.stack((high, low, mean.view(torch.int64), norm.view(torch.int64)))
    if tensor.dtype is torch.float64 or not (tensor.dtype.is_floating_point or tensor.dtype.is_complex):
        wide = torch.float64
    if tensor.dtype.is_complex:
        tensor = tensor.abs()
    elif tensor.dtype in _EIGHT_BIT_DTYPES:
        tensor = tensor.float()
    elif not tensor.dtype.is_floating_point:
        tensor = tensor.to(wide)
    low, high = torch.aminmax(tensor)
    if not tensor.ndim:
        return torch.stack((high, low, high, high)).to(wide)
    mean = tensor.mean(dtype=wide)
    if tensor.dtype is torch.float64 or (wide is torch.float32 and tensor.dtype is not torch.float16):
        # squares may leave the range, so divide by the largest element, without fetching it
        largest = torch.maximum(high.abs(), low.abs()).to(wide)
        scale = torch.where((largest > 0) & torch.isfinite(largest), largest, torch.ones_like(largest))
        norm = scale * torch.linalg.vector_norm(tensor.to(wide) / scale)
    else:
        norm = torch.linalg.vector_norm(tensor, dtype=wide)
    return torch.stack((high.to(wide), low.to(wide), mean, norm))
