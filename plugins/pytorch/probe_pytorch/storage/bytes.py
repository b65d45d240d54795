"""The bytes of a tensor in host memory, and checksums over them."""

from __future__ import annotations

import ctypes
import zlib
from typing import Union

import torch
import xxhash

Bytes = Union[bytes, "ctypes.Array[ctypes.c_char]"]


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    """``tensor`` detached, contiguous and in host memory, with conjugation and sign carried out.

    The tensor itself is not moved; where nothing has to be done the result shares its memory.
    """
    tensor = tensor.detach()
    if tensor.device.type != "cpu":
        tensor = tensor.cpu()
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def bytes_of(tensor: torch.Tensor) -> Bytes:
    """The memory of a tensor that ``on_host`` returned; valid as long as that tensor lives."""
    size = tensor.numel() * tensor.element_size()
    return (ctypes.c_char * size).from_address(tensor.data_ptr()) if size else b""


def crc32(tensor: torch.Tensor) -> str:
    """CRC-32 of the bytes in row-major order, as the peers' ``md5`` (spec/dump 7.3): 8 hex digits."""
    host = on_host(tensor)
    return f"{zlib.crc32(bytes_of(host)):08x}"


def xxh3(tensor: torch.Tensor) -> str:
    """64-bit XXH3 of the bytes in row-major order, seed 0: 16 hex digits."""
    host = on_host(tensor)
    return f"{xxhash.xxh3_64_intdigest(bytes_of(host)):016x}"


CHECKSUMS = {"md5": crc32, "xxh3": xxh3}
