"""Reading of checkpoints of MindSpore: a message of protocol buffers with an entry per parameter.

Format: mindspore/ccsrc/utils/checkpoint.proto. A large parameter has several entries with the same name, whose
bytes are consecutive. This module reads only lengths; the elements stay in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.elements import get_element_type
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.tensors import MAX_DIMENSIONS, JoinedTensor, StoredTensor, Tensor

MAX_TEXT_BYTES = 4096
_MAX_VARINT_BYTES = 10
_ELEMENT_TYPES = {
    "Float64": "float64", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16",
    "Int64": "int64", "Int32": "int32", "Int16": "int16", "Int8": "int8", "UInt64": "uint64",
    "UInt32": "uint32", "UInt16": "uint16", "UInt8": "uint8", "Bool": "bool",
    "Complex64": "complex64", "Complex128": "complex128",
}  # fmt: skip
Field = tuple[int, int, ByteSource]
"""The number of a field, its value if it is an integer, and its bytes."""


class _MalformedMessageError(ValueError):
    """An error in the encoding."""


def is_mindspore(head: bytes) -> bool:
    """Return True if a file begins like a checkpoint of MindSpore, with an entry that begins with its name."""
    return head[:1] == b"\x0a" and b"\x0a" in head[2:12]


def read_mindspore(path: Path) -> Checkpoint:
    """Return the tensors of a checkpoint of MindSpore.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """
    parts: dict[str, list[tuple[tuple[int, ...], str, ByteSource]]] = {}
    unreadable: dict[str, str] = {}
    try:
        for number, _, entry in _iterate_fields(ByteSource.from_path(path)):
            if number != 1:
                raise _MalformedMessageError
            name, tensor = _read_entry(entry)
            if tensor is None:
                unreadable[name] = "is no plain tensor"
            else:
                parts.setdefault(name, []).append(tensor)
        tensors: dict[str, Tensor] = {}
        for name, entries in parts.items():
            try:
                tensors[name] = _join_entries(entries)
            except TensorProblem as problem:
                unreadable[name] = str(problem)
    except (_MalformedMessageError, UnicodeDecodeError):
        raise UnreadableCheckpoint(path, "is cut off or damaged: it is no checkpoint of MindSpore") from None
    return Checkpoint(path, tensors, unreadable=unreadable)


def _iterate_fields(source: ByteSource) -> Iterator[Field]:
    """Yield the fields of a message."""
    position = 0
    empty = source.select_range(0, 0)
    while position < source.size:
        key, position = _read_varint(source, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _read_varint(source, position)
            yield number, value, empty
            continue
        if kind == 2:
            size, position = _read_varint(source, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _MalformedMessageError
        if size > source.size - position:
            raise _MalformedMessageError
        yield number, 0, source.select_range(position, size)
        position += size


def _read_varint(source: ByteSource, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = 0
    for index, byte in enumerate(source.read(position, min(_MAX_VARINT_BYTES, source.size - position))):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise _MalformedMessageError


def _read_entry(entry: ByteSource) -> tuple[str, tuple[tuple[int, ...], str, ByteSource] | None]:
    """Return the name of a parameter with its shape, type and bytes; None in place of these if it is not a tensor."""
    name, tensor = None, None
    for number, _, content in _iterate_fields(entry):
        if number == 1:
            name = _read_text(content)
        elif number == 2:
            tensor = _read_tensor(content)
    if name is None:
        raise _MalformedMessageError
    return name, tensor


def _read_tensor(message: ByteSource) -> tuple[tuple[int, ...], str, ByteSource]:
    shape: list[int] = []
    kind, data = "", None
    for number, value, content in _iterate_fields(message):
        if number == 1 and content.size:  # a packed list
            position = 0
            while position < content.size and len(shape) <= MAX_DIMENSIONS:
                size, position = _read_varint(content, position)
                shape.append(size)
        elif number == 1:
            shape.append(value)
        elif number == 2:
            kind = _read_text(content)
        elif number == 3:
            data = content
    if data is None or len(shape) > MAX_DIMENSIONS:
        raise _MalformedMessageError
    return tuple(shape), kind, data


def _read_text(source: ByteSource) -> str:
    if source.size > MAX_TEXT_BYTES:
        raise _MalformedMessageError
    return source.read(0, source.size).decode("utf-8")


def _join_entries(entries: list[tuple[tuple[int, ...], str, ByteSource]]) -> Tensor:
    """Return the tensor of all entries with one name."""
    shape, kind, _ = entries[0]
    element = get_element_type(_ELEMENT_TYPES.get(kind, kind or "(none)"))
    size = sum(data.size for _, _, data in entries)
    if shape == (0,) and size == element.size:  # a scalar
        shape = ()
    if math.prod(shape) * element.size != size or any(data.size % element.size for _, _, data in entries):
        raise TensorProblem(f"has {size} bytes, which does not fit its shape {list(shape)}")
    if len(entries) == 1:
        return StoredTensor(element, shape, entries[0][2])
    flat = [StoredTensor(element, (data.size // element.size,), data) for _, _, data in entries]
    return JoinedTensor(flat, 0).reshape(shape)
