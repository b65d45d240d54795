"""Reading of safetensors files: a JSON header, then the bytes of all tensors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from probe_recording.reading.entries import CODES

from probe_check.checkpoint.byte_source import ByteSource
from probe_check.checkpoint.elements import get_element_type
from probe_check.checkpoint.errors import TensorProblem, UnreadableCheckpoint
from probe_check.checkpoint.model import Checkpoint
from probe_check.checkpoint.tensors import MAX_DIMENSIONS, StoredTensor, Tensor

MAX_HEADER_BYTES = 100_000_000
"""Largest size of a header; the same as in the reference implementation of the format."""
_PREFIX_BYTES = 8


def read_safetensors(path: Path) -> Checkpoint:
    """Return the tensors of a safetensors file.

    Raises:
        UnreadableCheckpoint: The file is damaged.
    """
    source = ByteSource.from_path(path)
    if source.size < _PREFIX_BYTES:
        raise UnreadableCheckpoint(path, "is cut off: a safetensors file begins with the size of its header")
    length = int.from_bytes(source.read(0, _PREFIX_BYTES), "little")
    if length > source.size - _PREFIX_BYTES:
        raise UnreadableCheckpoint(path, "is cut off: its header is longer than the file")
    if length > MAX_HEADER_BYTES:
        raise UnreadableCheckpoint(path, f"has a header of {length} bytes, which is larger than the format allows")
    entries = _parse_header(path, bytes(source.read(_PREFIX_BYTES, length)))
    data = source.select_range(_PREFIX_BYTES + length, source.size - _PREFIX_BYTES - length)
    tensors: dict[str, Tensor] = {}
    unreadable: dict[str, str] = {}
    position = 0
    for name, entry in sorted(entries.items(), key=lambda item: _read_offsets(path, *item)):
        start, stop = _read_offsets(path, name, entry)
        if start != position:
            problem = "overlaps another tensor" if start < position else "leaves a gap before its data"
            raise UnreadableCheckpoint(path, f"is damaged: {name} {problem}")
        if stop > data.size:
            raise UnreadableCheckpoint(path, f"is cut off within {name}")
        position = stop
        try:
            tensors[name] = _create_tensor(path, name, entry, data.select_range(start, stop - start))
        except TensorProblem as problem:
            unreadable[name] = str(problem)
    if position != data.size:
        raise UnreadableCheckpoint(path, f"is damaged: {data.size - position} bytes belong to no tensor")
    order = [name for name in entries if name in tensors]
    return Checkpoint(path, {name: tensors[name] for name in order}, unreadable=unreadable)


def _parse_header(path: Path, text: bytes) -> dict[str, Any]:
    try:
        entries = json.loads(text.decode("utf-8"))
    except (ValueError, RecursionError):
        raise UnreadableCheckpoint(path, "is no safetensors file: its header is not JSON") from None
    if not isinstance(entries, dict):
        raise UnreadableCheckpoint(path, "is no safetensors file: its header is no JSON object")
    entries.pop("__metadata__", None)
    return entries


def _read_offsets(path: Path, name: str, entry: Any) -> tuple[int, int]:
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(number) is not int for number in offsets):
        raise UnreadableCheckpoint(path, f"is damaged: {name} has no data_offsets")
    start, stop = offsets
    if not 0 <= start <= stop:
        raise UnreadableCheckpoint(path, f"is damaged: {name} has invalid data_offsets")
    return start, stop


def _create_tensor(path: Path, name: str, entry: dict[str, Any], source: ByteSource) -> StoredTensor:
    shape, kind = entry.get("shape"), entry.get("dtype")
    is_valid = isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS
    if not is_valid or any(type(size) is not int or size < 0 for size in shape or ()):
        raise UnreadableCheckpoint(path, f"is damaged: {name} has an invalid shape")
    assert isinstance(shape, list)
    element = get_element_type(CODES.get(kind, kind) if isinstance(kind, str) else "(none)")
    if math.prod(shape) * element.size != source.size:
        raise UnreadableCheckpoint(path, f"is damaged: {name} has another size than its shape and type state")
    return StoredTensor(element, tuple(shape), source)
