"""The body of a sent call: its tensors as a packed store in memory (docs/formats.md#tensor-files).

It is written without a copy of the data, and read by the same checks as the packed file of a run.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Value
from probe_recording.reading.entries import CODES, SIZES, TensorEntry, parse_entries, parse_json_object, view_array
from probe_recording.sending.message import MAX_JSON_VALUES, Buffer, count_json_values

MAX_HEADER_BYTES = 16 << 20
"""Largest header of a body that is read, in bytes."""

BODY_NAME = "the body of the call"

_KINDS = {name: code for code, name in CODES.items()}


class SentTensor(NamedTuple):
    """A tensor to be sent.

    Attributes:
        name: Its name, which is its ``data_name`` without suffix.
        dtype: The name of its dtype in numpy or ml_dtypes, such as ``float32`` or ``bfloat16``.
        shape: Its sizes.
        data: Its elements in row-major order, little-endian; tensors that share one object are sent once.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: Buffer


def encode_body(tensors: Sequence[SentTensor]) -> list[Buffer]:
    """Return the body with these tensors as buffers to be written one after the other.

    Tensors with large elements come first, so that each lies at a multiple of its element size.

    Raises:
        ValueError: Two tensors have one name, or the data of one do not fit its shape and dtype.
    """
    header: dict[str, Any] = {}
    described: dict[str, dict[str, Any]] = {"alias": {}, "dtype": {}, "shape": {}}
    name_by_data: dict[tuple[int, str, tuple[int, ...]], str] = {}
    parts: list[Buffer] = []
    place = 0
    for tensor in sorted(tensors, key=lambda tensor: -SIZES.get(tensor.dtype, 1)):
        name, dtype, shape, data = tensor
        if name in header or name in described["alias"]:
            raise ValueError(f"two tensors of a call are called {name}")
        key = id(data), dtype, shape
        if key in name_by_data:
            described["alias"][name] = name_by_data[key]
            continue
        name_by_data[key] = name
        size = memoryview(data).nbytes
        if SIZES.get(dtype, size + 1) * prod(shape) != size:
            raise ValueError(f"{name} has {size} bytes, which do not fit {dtype} of the shape {shape}")
        code = _KINDS.get(dtype)
        if code is None:
            described["dtype"][name], described["shape"][name] = dtype, list(shape)
        header[name] = {
            "dtype": code or "U8",
            "shape": list(shape) if code else [size],
            "data_offsets": [place, place + size],
        }
        parts.append(data)
        place += size
    metadata = {"format": "pt", **{key: json.dumps(value) for key, value in described.items() if value}}
    text = json.dumps({"__metadata__": metadata, **header}).encode()
    text += b" " * (-(8 + len(text)) % 64)
    return [len(text).to_bytes(8, "little") + text, *parts]


class SentTensors:
    """The tensors of a received body; calling it with a recorded value returns that value's array.

    Args:
        content: The body.

    Raises:
        UnreadableTensor: Nothing in the body can be read; an error in one tensor is raised when it is read.
    """

    def __init__(self, content: Buffer) -> None:
        self._content = memoryview(content).cast("B").toreadonly()
        self._entries: dict[str, TensorEntry | str] = {}
        size = len(self._content)
        if not size:
            return  # a call without tensors
        length = int.from_bytes(self._content[:8], "little")
        if size < 8 or 8 + length > size:
            raise UnreadableTensor(f"{BODY_NAME} is cut off within its header")
        if length > MAX_HEADER_BYTES:
            raise UnreadableTensor(f"{BODY_NAME} claims a header of {length:,} bytes")
        text = bytes(self._content[8 : 8 + length])
        if (values := count_json_values(text)) > MAX_JSON_VALUES:
            raise UnreadableTensor(f"the header of {BODY_NAME} has {values:,} values")
        header = parse_json_object(text, f"the header of {BODY_NAME}")
        self._entries = parse_entries(header, 8 + length, size - 8 - length, BODY_NAME)

    @property
    def names(self) -> list[str]:
        """The names of all tensors, which are their ``data_name`` without suffix."""
        return list(self._entries)

    def __call__(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the data of a tensor value as a read-only array, a view of the body.

        Raises:
            UnreadableTensor: The body holds no such tensor, or its entry is wrong.
        """
        name = (value.data_name or "").rpartition(".")[0]
        entry = self._entries.get(name)
        if entry is None:
            raise UnreadableTensor(f"{BODY_NAME} holds no {name}", missing=True)
        if isinstance(entry, str):
            raise UnreadableTensor(f"{BODY_NAME} is damaged: {name} {entry}")
        array = view_array(entry, name, self._content, entry.start, BODY_NAME)
        if sys.byteorder != "little":
            array = array.byteswap()
            array.setflags(write=False)
        return array
