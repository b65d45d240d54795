"""Reading of checkpoints of MindSpore: a message of protocol buffers with an entry per parameter.

Format: mindspore/ccsrc/utils/checkpoint.proto. A large parameter has several entries with one name,
whose bytes follow each other. Only lengths are read here; the elements stay in the file.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.elements import element_type
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.tensors import MAX_DIMENSIONS, JoinedTensor, StoredTensor, Tensor

MAX_TEXT_BYTES = 4096
_VARINT_BYTES = 10
_TYPES = {
    "Float64": "float64", "Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16",
    "Int64": "int64", "Int32": "int32", "Int16": "int16", "Int8": "int8", "UInt64": "uint64",
    "UInt32": "uint32", "UInt16": "uint16", "UInt8": "uint8", "Bool": "bool",
    "Complex64": "complex64", "Complex128": "complex128",
}  # fmt: skip
Field = tuple[int, int, ByteSource]
"""The number of a field, its value if that is an integer, and its bytes."""


class _Damaged(ValueError):
    """An error in the encoding."""


def is_mindspore(head: bytes) -> bool:
    """Return True if a file may begin as a checkpoint of MindSpore: an entry that begins with its name."""
    return head[:1] == b"\x0a" and b"\x0a" in head[2:12]


def read_mindspore(path: Path) -> Checkpoint:
    """Return the tensors of a checkpoint of MindSpore.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """
    parts: dict[str, list[tuple[tuple[int, ...], str, ByteSource]]] = {}
    unreadable: dict[str, str] = {}
    try:
        for number, _, entry in _fields(ByteSource.of(path)):
            if number != 1:
                raise _Damaged
            name, tensor = _entry(entry)
            if tensor is None:
                unreadable[name] = "is no plain tensor"
            else:
                parts.setdefault(name, []).append(tensor)
        tensors: dict[str, Tensor] = {}
        for name, entries in parts.items():
            try:
                tensors[name] = _joined(entries)
            except TensorProblem as problem:
                unreadable[name] = str(problem)
    except (_Damaged, UnicodeDecodeError):
        raise UnreadableCheckpoint(path, "is cut off or damaged: it is no checkpoint of MindSpore") from None
    return Checkpoint(path, tensors, unreadable=unreadable)


def _fields(source: ByteSource) -> Iterator[Field]:
    """Yield the fields of a message."""
    position = 0
    empty = source.part(0, 0)
    while position < source.size:
        key, position = _varint(source, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(source, position)
            yield number, value, empty
            continue
        if kind == 2:
            size, position = _varint(source, position)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise _Damaged
        if size > source.size - position:
            raise _Damaged
        yield number, 0, source.part(position, size)
        position += size


def _varint(source: ByteSource, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = 0
    for index, byte in enumerate(source.read(position, min(_VARINT_BYTES, source.size - position))):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise _Damaged


def _entry(entry: ByteSource) -> tuple[str, tuple[tuple[int, ...], str, ByteSource] | None]:
    """Return the name of a parameter, and its shape, type and bytes; None for another kind of value."""
    name, tensor = None, None
    for number, _, content in _fields(entry):
        if number == 1:
            name = _text(content)
        elif number == 2:
            tensor = _tensor(content)
    if name is None:
        raise _Damaged
    return name, tensor


def _tensor(message: ByteSource) -> tuple[tuple[int, ...], str, ByteSource]:
    shape: list[int] = []
    kind, data = "", None
    for number, value, content in _fields(message):
        if number == 1 and content.size:  # a packed list
            position = 0
            while position < content.size and len(shape) <= MAX_DIMENSIONS:
                size, position = _varint(content, position)
                shape.append(size)
        elif number == 1:
            shape.append(value)
        elif number == 2:
            kind = _text(content)
        elif number == 3:
            data = content
    if data is None or len(shape) > MAX_DIMENSIONS:
        raise _Damaged
    return tuple(shape), kind, data


def _text(source: ByteSource) -> str:
    if source.size > MAX_TEXT_BYTES:
        raise _Damaged
    return source.read(0, source.size).decode("utf-8")


def _joined(entries: list[tuple[tuple[int, ...], str, ByteSource]]) -> Tensor:
    """Return the tensor of all entries with one name."""
    shape, kind, _ = entries[0]
    element = element_type(_TYPES.get(kind, kind or "(none)"))
    size = sum(data.size for _, _, data in entries)
    if shape == (0,) and size == element.size:  # a scalar
        shape = ()
    if math.prod(shape) * element.size != size or any(data.size % element.size for _, _, data in entries):
        raise TensorProblem(f"has {size} bytes, which does not fit its shape {list(shape)}")
    if len(entries) == 1:
        return StoredTensor(element, shape, entries[0][2])
    flat = [StoredTensor(element, (data.size // element.size,), data) for _, _, data in entries]
    return JoinedTensor(flat, 0).reshaped(shape)
