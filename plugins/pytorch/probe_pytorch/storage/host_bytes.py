"""The bytes of a tensor in host memory, and checksums over them."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Union

import torch
import xxhash

Bytes = Union[bytes, "ctypes.Array[ctypes.c_char]"]

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


def compute_crc32(tensor: torch.Tensor) -> str:
    """Return the CRC-32 of the bytes in row-major order as 8 hex digits.

    msprobe calls this checksum ``md5``; see docs/formats.md#checksums.
    """
    host = copy_to_host(tensor)
    return format_crc32(zlib.crc32(view_bytes(host)))


def format_crc32(checksum: int) -> str:
    """Return a 32-bit checksum, signed or unsigned, as 8 hex digits."""
    return f"{checksum & 0xFFFFFFFF:08x}"


def compute_xxh3(tensor: torch.Tensor) -> str:
    """Return the 64-bit XXH3 hash (seed 0) of the bytes in row-major order as 16 hex digits."""
    host = copy_to_host(tensor)
    return f"{xxhash.xxh3_64_intdigest(view_bytes(host)):016x}"


CHECKSUMS: dict[str, Callable[[torch.Tensor], str]] = {"md5": compute_crc32, "xxh3": compute_xxh3}
"""Functions by the names in the configuration; ``md5`` is the name that msprobe gives to a CRC-32."""
