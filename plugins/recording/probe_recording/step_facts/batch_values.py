"""The tensors of a batch, and a hash of their bits that depends on their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from probe_recording.step_facts.step_phases import flatten_leaves
from probe_recording.values.arrays import Array

BLOCK = 1 << 14
"""Number of elements that are weighted together."""

CHUNK_BLOCKS = 1 << 8
"""Number of blocks that are converted at once, which bounds the memory for their copies (32 MiB)."""

MAX_DEPTH = 8
"""Largest depth of nested containers in which tensors are searched for."""

_MODULUS = 2**64

_BITS = {1: np.uint8, 2: np.int16, 4: np.int32, 8: np.int32, 16: np.int32}
"""Integers that elements are read as, by their size; large elements as several integers."""


def hash_array(array: Array) -> int | None:
    """Return a hash of the bits of an array; None for an array whose bits cannot be read.

    The hash is ``sum((bits[i] + 1) * weight[i])`` modulo 2**64, where the weights are a fixed sequence of
    pseudo-random odd numbers. ``bits[i]`` is an element as an integer, or a part of 4 bytes of a larger
    element, so that the weights reach all bits.

    Args:
        array: An array of any shape and memory layout.

    Returns:
        The hash as a non-negative integer.
    """
    kind = _BITS.get(array.dtype.itemsize)
    if kind is None or array.dtype.hasobject:
        return None
    bits = np.ascontiguousarray(array).reshape(-1).view(kind)
    size = BLOCK * CHUNK_BLOCKS
    total = 0
    for start in range(0, bits.size, size):
        total += _hash_chunk(bits[start : start + size]) * chunk_weight(start // size)
    return total % _MODULUS


def _hash_chunk(bits: Array) -> int:
    """Return the hash of at most ``CHUNK_BLOCKS`` blocks."""
    weights, block_weights = hash_weights(BLOCK), hash_weights(CHUNK_BLOCKS + 1)
    whole = bits.size // BLOCK
    rest = bits[whole * BLOCK :].astype(np.int64) + 1
    total = int((rest * weights[: rest.size]).sum()) * int(block_weights[whole])
    if whole:
        blocks = bits[: whole * BLOCK].reshape(whole, BLOCK).astype(np.int64)
        blocks += 1
        blocks *= weights
        total += int((blocks.sum(axis=1) * block_weights[:whole]).sum())
    return total


@cache
def hash_weights(count: int) -> Array:
    """Return pseudo-random odd int64 numbers, the first outputs of splitmix64 (Steele, Lea, Flood, 2014)."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    odd = (state ^ (state >> np.uint64(31))) | np.uint64(1)
    weights: Array = odd.view(np.int64)
    return weights


def chunk_weight(number: int) -> int:
    """Return the weight of a chunk as a signed number of 64 bits."""
    weight = (2 * number + 1) * 0xD6E8FEB86659FD93 % _MODULUS
    return weight - _MODULUS if weight >= _MODULUS // 2 else weight


def create_batch_entry(dtype: str, shape: Sequence[int], hashed: int) -> str:
    """Return the text of a tensor of the batch.

    Args:
        dtype: The name of its dtype without the framework, such as ``float32``.
        shape: Its shape.
        hashed: The hash of its bits, which may be a signed number of 64 bits.
    """
    return f"{dtype}{[int(size) for size in shape]} {hashed % _MODULUS:016x}"


def iterate_batch_tensors(
    args: Sequence[Any], kwargs: Mapping[str, Any], kinds: type | tuple[type, ...]
) -> Iterator[tuple[str, Any]]:
    """Yield the tensors in the arguments of a model with their places, such as ``input.0``.

    Args:
        args: The positional arguments.
        kwargs: The keyword arguments.
        kinds: The classes of tensors.
    """
    for value in (list(args), dict(kwargs)):
        for name, tensor in flatten_leaves(_tensors_only(value, kinds), "input"):
            if tensor is not None:
                yield name, tensor


def _tensors_only(value: Any, kinds: type | tuple[type, ...], depth: int = 0) -> Any:
    """Return nested lists and dicts of the tensors in a value, with None in place of other values."""
    if isinstance(value, kinds):
        return value
    if depth < MAX_DEPTH and isinstance(value, (list, tuple)):
        return [_tensors_only(item, kinds, depth + 1) for item in value]
    if depth < MAX_DEPTH and isinstance(value, Mapping):
        return {str(key): _tensors_only(item, kinds, depth + 1) for key, item in value.items()}
    return None
