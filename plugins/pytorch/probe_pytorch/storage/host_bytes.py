"""The bytes of a tensor in host memory, and checksums over them."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Union

import torch
import xxhash

Bytes = Union[bytes, memoryview, "ctypes.Array[ctypes.c_char]"]

MAX_SIZES = 1024
"""Number of sizes of tensors whose array types are cached."""


def copy_to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor detached, contiguous and in host memory, with conjugation and negation resolved.

    The tensor itself is not changed; if nothing has to be done, the result shares its memory.
    """
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def view_bytes(tensor: torch.Tensor) -> Bytes:
    """Return the memory of a tensor that ``copy_to_host`` returned; it is valid as long as that tensor exists."""
    size = tensor.numel() * tensor.element_size()
    return _get_array_type(size).from_address(tensor.data_ptr()) if size else b""


@lru_cache(MAX_SIZES)
def _get_array_type(size: int) -> type[ctypes.Array[ctypes.c_char]]:
    """Return the type of an array of bytes, which takes long to create."""
    return ctypes.c_char * size


def format_crc32(checksum: int) -> str:
    """Return a 32-bit checksum, signed or unsigned, as 8 hex digits."""
    return f"{checksum & 0xFFFFFFFF:08x}"


def _hash_crc32(content: Bytes) -> str:
    return format_crc32(zlib.crc32(content))


@dataclass(frozen=True, slots=True)
class Checksum:
    """A checksum of the bytes of a tensor in row-major order.

    Attributes:
        hash_bytes: A function that returns the checksum of bytes as hex digits.
        is_unique: True if tensors with the same checksum have the same bytes, except with negligible probability.
    """

    hash_bytes: Callable[[Bytes], str]
    is_unique: bool

    def __call__(self, tensor: torch.Tensor) -> str:
        """Return the checksum of a tensor."""
        host = copy_to_host(tensor)
        return self.hash_bytes(view_bytes(host))


CHECKSUMS = {
    "md5": Checksum(_hash_crc32, is_unique=False),
    "xxh3": Checksum(xxhash.xxh3_64_hexdigest, is_unique=True),
}
"""Checksums by the names in the configuration; ``md5`` is the name that msprobe gives to a CRC-32 of 8 hex digits."""
