"""The packed signs of a step: a safetensors file with a bit per element (docs/gradients.md#packed-signs).

The header is written last, into space that is reserved for it, because a gradient that cannot be measured has
no entry. Only one gradient is in memory at a time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from probe_recording.values.arrays import Array

from probe_core.errors import UnreadableTensor
from probe_core.files.atomic import AtomicFile
from probe_watch.grad_probe.names import get_packed_path

FORMAT_NAME = "probe-gradient-signs"
VERSION = "1"
MAX_HEADER_BYTES = 256 << 20
MAX_DIMENSIONS = 32
_ENTRY_BYTES = 120
_PREFIX_BYTES = 8


class PackedWriter:
    """A writer of the packed signs of a step.

    Args:
        directory: The directory of the rank.
        step: The number of the step.
        shapes: The shapes of all gradients that may follow, by the names of their parameters.

    Raises:
        UserError: The directory is not writable.
    """

    def __init__(self, directory: Path, step: int, shapes: Mapping[str, tuple[int, ...]]) -> None:
        names = sum(2 * len(json.dumps(name)) + 10 * len(shape) for name, shape in shapes.items())
        room = names + _ENTRY_BYTES * (len(shapes) + 2)
        self._data_start = _PREFIX_BYTES + room + -room % 8
        self._entries: dict[str, Any] = {}
        self._shapes: dict[str, list[int]] = {}
        self._position = 0
        self._atomic = AtomicFile(get_packed_path(directory, step))
        self._file: BinaryIO = self._atomic.temporary.open("r+b")
        self._file.seek(self._data_start)

    def add(self, parameter: str, is_positive: Array) -> None:
        """Write the signs of one gradient."""
        bits = np.packbits(is_positive.reshape(-1), bitorder="little")
        self._file.write(bits.tobytes())
        start, self._position = self._position, self._position + bits.size
        self._entries[parameter] = {
            "dtype": "U8", "shape": [bits.size], "data_offsets": [start, self._position],
        }  # fmt: skip
        self._shapes[parameter] = list(is_positive.shape)

    def commit(self) -> None:
        """Write the header, and give the file its name."""
        metadata = {"format": FORMAT_NAME, "version": VERSION, "shapes": json.dumps(self._shapes)}
        header = json.dumps({"__metadata__": metadata, **self._entries}).encode()
        room = self._data_start - _PREFIX_BYTES
        assert len(header) <= room, "the room for the header is too small"
        self._file.seek(0)
        self._file.write(room.to_bytes(_PREFIX_BYTES, "little") + header.ljust(room))
        self._file.close()
        self._atomic.commit()

    def discard(self) -> None:
        """Remove the unfinished file."""
        self._file.close()
        self._atomic.discard()


class PackedSigns:
    """The packed signs of a step, read without unpickling; every entry is checked before it is used.

    Args:
        path: The file.

    Raises:
        UnreadableTensor: The header is damaged.
        OSError: The file cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._name = path, path.name
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(_PREFIX_BYTES), "little")
            if size < _PREFIX_BYTES or length > min(size - _PREFIX_BYTES, MAX_HEADER_BYTES):
                raise UnreadableTensor(f"{path.name} is cut off: its header is longer than the file")
            self._entries, self._shapes = self._parse_header(file.read(length))
            self._data_start, self._size = _PREFIX_BYTES + length, size

    def __contains__(self, parameter: object) -> bool:
        return parameter in self._entries

    def _parse_header(self, header: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
        damaged = UnreadableTensor(f"{self._name} is damaged: its header is no index of gradient signs")
        try:
            entries = json.loads(header)
            metadata = entries.pop("__metadata__")
            is_known = (metadata["format"], metadata["version"]) == (FORMAT_NAME, VERSION)
            shapes = json.loads(metadata["shapes"])
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            raise damaged from None
        if not is_known or not isinstance(shapes, dict):
            raise damaged
        return entries, shapes

    def load(self, parameter: str) -> tuple[tuple[int, ...], Array]:
        """Return the shape of a gradient, and its signs as packed bits, the first element in the lowest bit.

        Raises:
            UnreadableTensor: The entry is damaged or cut off.
            OSError: The file cannot be read any more.
        """
        damaged = UnreadableTensor(f"{self._name} is damaged: the entry of {parameter} is wrong")
        entry, shape = self._entries[parameter], self._shapes.get(parameter)
        if not isinstance(shape, list) or len(shape) > MAX_DIMENSIONS:
            raise damaged
        if any(type(length) is not int or length < 0 for length in shape):
            raise damaged
        try:
            start, stop = entry["data_offsets"]
            is_packed = entry["dtype"] == "U8" and type(start) is int and type(stop) is int
        except (ValueError, TypeError, KeyError):
            raise damaged from None
        byte_count = (prod(shape) + 7) // 8
        if not is_packed or start < 0 or stop - start != byte_count:
            raise damaged
        if self._data_start + stop > self._size:
            raise UnreadableTensor(f"{self._name} is cut off within the entry of {parameter}")
        bits = np.fromfile(self._path, np.uint8, byte_count, offset=self._data_start + start)
        if bits.size < byte_count:
            raise UnreadableTensor(f"{self._name} was cut off while it was read")
        return tuple(shape), bits
