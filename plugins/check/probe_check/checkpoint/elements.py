"""The element types of tensors in checkpoints, and their values as NumPy has them.

Values of bfloat16 and of the 8-bit floating-point types are returned as float32, which represents them exactly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from probe_recording.values.arrays import Array

from probe_check.checkpoint.errors import TensorProblem

_NUMPY_TYPES = {
    "float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": "u2",
    "complex128": "c16", "complex64": "c8",
    "int64": "i8", "int32": "i4", "int16": "i2", "int8": "i1",
    "uint64": "u8", "uint32": "u4", "uint16": "u2", "uint8": "u1", "bool": "u1",
}  # fmt: skip
"""The NumPy types that the elements are stored as, without their byte order."""
_FLOAT8_TYPES = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ElementType:
    """A type of elements and their byte order.

    Attributes:
        name: The name, such as ``bfloat16``.
        stored: The NumPy type of the bytes.
    """

    name: str
    stored: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of bytes of an element."""
        return self.stored.itemsize

    def decode(self, data: bytes | bytearray) -> Array:
        """Return the elements in ``data``; read-only if no conversion is needed."""
        raw: Array = np.frombuffer(data, self.stored)
        if self.name == "bfloat16":
            wide: Array = raw.astype(np.uint32)
            wide <<= np.uint32(16)
            return wide.view(np.float32)
        if self.name in _FLOAT8_TYPES:
            values: Array = _decode_all_values(self.name)[raw]
            return values
        if self.name == "bool":
            flags: Array = raw != 0
            return flags
        return raw if raw.dtype.isnative else raw.astype(raw.dtype.newbyteorder("="))


@cache
def _decode_all_values(name: str) -> Array:
    """Return the values of all 256 elements of an 8-bit type."""
    import ml_dtypes

    values: Array = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name)).astype(np.float32)
    return values


@cache
def get_element_type(name: str, *, is_big_endian: bool = False) -> ElementType:
    """Return the element type with a name of PyTorch.

    Raises:
        TensorProblem: The type is not supported.
    """
    if name in _FLOAT8_TYPES:
        try:
            _decode_all_values(name)
        except (ImportError, AttributeError):
            raise TensorProblem(f"has the type {name}, which needs the package ml_dtypes") from None
        return ElementType(name, np.dtype("u1"))
    if name not in _NUMPY_TYPES:
        raise TensorProblem(f"has the type {name:.40}, which is not supported")
    return ElementType(name, np.dtype((">" if is_big_endian else "<") + _NUMPY_TYPES[name]))
