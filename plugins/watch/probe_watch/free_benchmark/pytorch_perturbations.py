"""The changes of the inputs of a second run (docs/free-benchmark.md#perturbations)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from probe_watch.free_benchmark.settings import ChangeMode

HALVES = (torch.float16, torch.bfloat16)
_BITS = {
    torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32,
    torch.float64: torch.int64,
}  # fmt: skip


def format_dtype(dtype: torch.dtype) -> str:
    """Return the name of a dtype without ``torch.``."""
    return str(dtype).removeprefix("torch.")


def add_noise(tensor: torch.Tensor, noise: Mapping[str, float]) -> torch.Tensor | None:
    """Return ``x + noise`` where ``|x| > sqrt(noise)``; None if no element is that large.

    Args:
        tensor: The tensor; nan and infinities stay as they are.
        noise: The size of the noise, by dtype; tensors of other dtypes are not changed.
    """
    size = noise.get(format_dtype(tensor.dtype))
    if size is None or not tensor.numel():
        return None
    large = tensor.abs() > size**0.5
    return torch.where(large, tensor + size, tensor) if bool(large.any()) else None


def flip_last_bit(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return ``x`` with its last bit flipped where ``|x|`` is larger than the smallest normal number.

    Returns:
        The new tensor; None if the dtype has no integer of its size, or no element is that large. Nan and
        infinities stay as they are.
    """
    bits = _BITS.get(tensor.dtype)
    if bits is None or not tensor.numel():
        return None
    size = tensor.abs()
    large = (size > torch.finfo(tensor.dtype).tiny) & size.isfinite()
    if not bool(large.any()):
        return None
    flipped = tensor.contiguous().view(bits).bitwise_xor(1).view(tensor.dtype)
    return torch.where(large, flipped, tensor)


def swap_ends(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a copy whose first and last parts are swapped.

    These are ``x[0]`` and ``x[-1]`` of a vector, and ``x[0][0]`` and ``x[-1][-1]`` of other tensors.

    Returns:
        The copy; None if there are no two parts.
    """
    if tensor.dim() == 0 or (tensor.dim() == 1 and len(tensor) < 2):
        return None
    if tensor.dim() > 1 and (not tensor.shape[1] or not tensor.shape[0] or max(tensor.shape[:2]) < 2):
        return None
    result = tensor.clone()
    first, last = (0, -1) if tensor.dim() == 1 else ((0, 0), (-1, -1))
    result[first] = tensor[last]
    result[last] = tensor[first]
    return result


def raise_halves(tensor: torch.Tensor) -> torch.Tensor:
    """Return a float16 or bfloat16 tensor as float32, and others as they are."""
    return tensor.float() if tensor.dtype in HALVES else tensor


def create_changer(mode: ChangeMode, noise: Mapping[str, float]) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """Return the function that changes one tensor; it returns None if it changes nothing.

    Args:
        mode: A mode that changes one argument.
        noise: The size of the noise, by dtype.
    """
    if mode is ChangeMode.ADD_NOISE:
        return lambda tensor: add_noise(tensor, noise)
    if mode is ChangeMode.BIT_NOISE:
        return flip_last_bit
    if mode is ChangeMode.CHANGE_VALUE:
        return swap_ends
    return lambda tensor: tensor
