"""A hash of a tensor's bits that depends on their order, computed on the tensor's own device."""

from __future__ import annotations

from functools import cache

import torch
from probe_recording.step_facts.batch_values import BLOCK, CHUNK_BLOCKS, chunk_weight, hash_weights

from probe_pytorch import compat
from probe_pytorch.statistics import PLAIN

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int32}
"""Integers that elements are read as, by their size; large ones as two, so that weights reach all bits."""


def hash_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a hash of the bits of a tensor; None for a tensor whose bits cannot be read.

    The hash is ``sum((bits[i] + 1) * weight[i])`` modulo 2**64, where the weights are a fixed sequence of
    pseudo-random odd numbers, and bits are one element, or half an element of 8 bytes, as an integer. It is
    the same on all devices.

    Args:
        tensor: A tensor of any shape.

    Returns:
        The hash as an int64 tensor of one element on the device of the tensor, which is not waited for.
    """
    if type(tensor) not in PLAIN or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if tensor.is_meta or compat.is_transformed(tensor):
        return None
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if not flat.numel():
        return total
    bits = flat.view(_BITS[flat.element_size()])
    weights = _compute_weights(BLOCK, tensor.device)
    size = BLOCK * CHUNK_BLOCKS
    for start in range(0, bits.numel(), size):
        total += _hash_chunk(bits[start : start + size], weights) * chunk_weight(start // size)
    return total


def _hash_chunk(bits: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the hash of at most ``CHUNK_BLOCKS`` blocks."""
    whole = bits.numel() // BLOCK
    block_weights = _compute_weights(CHUNK_BLOCKS + 1, bits.device)
    rest = bits[whole * BLOCK :].to(torch.int64) + 1
    total = (rest * weights[: rest.numel()]).sum() * block_weights[whole]
    if whole:
        blocks = bits[: whole * BLOCK].view(whole, BLOCK).to(torch.int64, copy=True)
        total += (blocks.add_(1).mul_(weights).sum(1) * block_weights[:whole]).sum()
    return total


@cache
def _compute_weights(count: int, device: torch.device) -> torch.Tensor:
    """Return the first weights on a device."""
    return torch.from_numpy(hash_weights(count)).to(device)
