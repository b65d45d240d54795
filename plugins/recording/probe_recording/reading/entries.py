"""Checks of the header of a safetensors file or body: the entries of its tensors.

The format is docs/formats.md#tensor-files. The header is a JSON object that gives the element type, shape and
place of each tensor in the data behind it. Three keys of its ``__metadata__``, JSON objects as texts, are
probe's own: ``alias`` maps names of tensors to the names that they are stored under, ``dtype`` and ``shape``
describe U8 entries whose element type safetensors lacks.

A header may come from a stranger, so everything is checked before it is used: an error in one entry makes
that tensor unreadable, an error in the header all of them.
"""

from __future__ import annotations

import json
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from probe_core.errors import UnreadableTensor

MAX_DIMENSIONS = 32

_PLAIN = {
    "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
_EXTENDED_DTYPE_BYTES = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e4m3b11fnuz": 1, "float8_e4m3": 1, "float8_e3m4": 1,
}  # fmt: skip
SIZES = {**_PLAIN, **_EXTENDED_DTYPE_BYTES}
"""Bytes per element, by the name of the dtype in numpy or ml_dtypes."""

CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
    "U8": "uint8", "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


class TensorEntry(NamedTuple):
    """A checked entry of the header: dtype, shape and offset in the file or body, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """The offset of the tensor's end, in bytes."""
        return self.start + prod(self.shape) * SIZES[self.dtype]


@lru_cache(maxsize=64)
def find_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of this name, in numpy or ml_dtypes.

    Raises:
        ImportError: ml_dtypes is needed and not installed.
        AttributeError: The installed ml_dtypes is too old.
    """
    if name in _PLAIN:
        return np.dtype(name)
    import ml_dtypes  # not declared as a dependency: plugins whose framework records such types bring it

    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return extended


def parse_json_object(data: bytes | str, subject: str) -> dict[str, Any]:
    """Return the JSON object in ``data``.

    Raises:
        UnreadableTensor: There is none; the message begins with ``subject``.
    """
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UnreadableTensor(f"{subject} is not valid JSON") from None
    if not isinstance(value, dict):
        raise UnreadableTensor(f"{subject} is not a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def parse_entries(header: dict[str, Any], start: int, size: int, file: str) -> dict[str, TensorEntry | str]:
    """Return the entries of a header by all names of their tensors.

    Args:
        header: The JSON object; it is changed.
        start: The offset of the data, in bytes.
        size: Bytes of data.
        file: The name of the file or body, for messages.

    Raises:
        UnreadableTensor: The header as a whole is wrong.
    """
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise UnreadableTensor(f"{file} is damaged: its metadata are not a JSON object")
    alias, dtypes, shapes = (_parse_metadata_field(metadata or {}, key, file) for key in ("alias", "dtype", "shape"))
    entries: dict[str, TensorEntry | str] = header
    for name, fields in header.items():
        try:
            entry = _parse_entry(fields, start, size)
            if name in dtypes:
                entry = _restore_entry_type(entry, dtypes[name], shapes.get(name))
            entries[name] = entry
        except ValueError as error:
            entries[name] = str(error)
    lacking = "stands for a tensor that is not there"
    entries.update(
        {
            name: entries.get(stored, lacking) if isinstance(stored, str) else lacking
            for name, stored in alias.items()
            if name not in entries
        }
    )
    return entries


def _parse_metadata_field(metadata: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    text = metadata.get(key, "{}")
    if not isinstance(text, str):
        raise UnreadableTensor(f'{file} is damaged: "{key}" of its metadata is no text')
    return parse_json_object(text, f'"{key}" of the metadata of {file}')


def _parse_entry(fields: Any, start: int, size: int) -> TensorEntry:
    """Return a checked entry of the header.

    Raises:
        ValueError: The entry is wrong; the text continues a sentence that begins with the tensor's name.
    """
    if not isinstance(fields, dict):
        raise ValueError("is not described by a JSON object")
    code, offsets = fields.get("dtype"), fields.get("data_offsets")
    dtype = CODES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise ValueError(_describe_unknown_dtype(code))
    shape = _check_shape(fields.get("shape"))
    if not isinstance(offsets, list) or [type(offset) for offset in offsets[:3]] != [int, int]:
        raise ValueError("has no pair of whole numbers for its place in the data")
    begin, end = offsets
    if not 0 <= begin <= end:
        raise ValueError("ends before it begins, or begins before the data do")
    if end > size:
        raise ValueError("reaches beyond the end of the file, which may have been cut off")
    if prod(shape) * SIZES[dtype] != end - begin:
        raise ValueError("takes more or fewer bytes than its shape and element type say")
    return TensorEntry(dtype, shape, start + begin)


def _restore_entry_type(entry: TensorEntry, dtype: Any, shape: Any) -> TensorEntry:
    """Return a U8 entry with the dtype and shape that it stands for.

    Raises:
        ValueError: They contradict the entry; the text continues a sentence that begins with its name.
    """
    if not isinstance(dtype, str) or dtype not in SIZES:
        raise ValueError(_describe_unknown_dtype(dtype))
    if entry.dtype != "uint8" or len(entry.shape) != 1:
        raise ValueError(f"holds {dtype} and is not stored as a row of bytes")
    sizes = _check_shape(shape)
    if prod(sizes) * SIZES[dtype] != entry.shape[0]:
        raise ValueError("takes more or fewer bytes than its shape and element type say")
    return TensorEntry(dtype, sizes, entry.start)


def _describe_unknown_dtype(dtype: Any) -> str:
    if not isinstance(dtype, str):
        return "has no element type, or one that is no text"
    return f'has the element type "{dtype[:20]}", which is not known'


def _check_shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list):
        raise ValueError("has no list of sizes for a shape")
    if len(sizes) > MAX_DIMENSIONS:
        raise ValueError(f"has more than {MAX_DIMENSIONS} dimensions")
    if any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError("has a negative or non-integer size in its shape")
    return tuple(sizes)


def view_array(entry: TensorEntry, name: str, memory: Any, start: int, file: str) -> np.ndarray[Any, Any]:
    """Return a tensor as an array in the byte order of the file, a view of ``memory``.

    Args:
        entry: The checked entry of the tensor.
        name: The name of the tensor, for messages.
        memory: An object with the buffer protocol.
        start: The offset of the tensor in it, in bytes.
        file: The name of the file or body, for messages.

    Raises:
        UnreadableTensor: ml_dtypes is missing, or no array can have this shape.
    """
    try:
        dtype = find_dtype(entry.dtype)
        if 0 in entry.shape:
            array: np.ndarray[Any, Any] = np.empty(entry.shape, dtype)
            array.setflags(write=False)
            return array
        array = np.ndarray(entry.shape, dtype, memory, start)
        return array
    except (ImportError, AttributeError):
        raise UnreadableTensor(
            f"{name} holds {entry.dtype}, which needs the package ml_dtypes (0.5 or later) to be read: "
            'pip install "ml_dtypes>=0.5"'
        ) from None
    except (ValueError, TypeError, OverflowError, MemoryError):
        raise UnreadableTensor(f"{file} is damaged: {name} has a shape that no array can have") from None
