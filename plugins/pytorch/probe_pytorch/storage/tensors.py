"""The data of tensors: a ``.pt`` file each, or all in one safetensors file.

The packed file begins with room for its header, blank until the step ends; until then, and after
a crash, ``tensors.index.json`` beside it holds the header, replaced as a whole at each flush.
Tensors of equal bytes are stored once: what one call gives out the next one takes in.
"""

from __future__ import annotations

import io
import json
import os
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Protocol

import torch
import xxhash
from probe_recording import interrupts_deferred

from probe_core.errors import UserError
from probe_core.files.atomic import create, open_file, write_text
from probe_core.store.files import JOURNAL_FILE, PACKED_FILE
from probe_pytorch.storage.bytes import Bytes, bytes_of, on_host

SUFFIX = ".pt"
PART = ".tensor.part"
LONGEST_NAME = 255
HEADER_ROOM = 1 << 16
"""Bytes kept free for the header of the first step; later steps keep what the last one took."""

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
for _name, _kind in {"uint64": "U64", "uint32": "U32", "uint16": "U16", "float8_e4m3fn": "F8_E4M3",
                     "float8_e5m2": "F8_E5M2"}.items():  # fmt: skip
    if hasattr(torch, _name):
        _KINDS[getattr(torch, _name)] = _kind


class TensorStore(Protocol):
    """Where the data of one step's tensors go."""

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        """Store ``tensor`` under ``name``; its ``data_name``, or None where it cannot be stored."""

    def name_of(self, name: str) -> str | None:
        """The ``data_name`` that ``save`` would give."""

    def flush(self) -> None:
        """Let everything saved so far survive a crash."""

    def close(self) -> int:
        """Complete what was written; the room that a header like this one should have."""


class FileStore:
    """One ``.pt`` file a tensor, as the peers write and read them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        """Write the file; a name too long for a file is not stored."""
        file = self.name_of(name)
        if file is None:
            return None
        tensor = on_host(tensor)
        if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()
        part = self._directory / PART  # the archive repeats its name: one for all, so that bytes are equal
        part.unlink(missing_ok=True)
        os.close(create(part))
        try:
            with interrupts_deferred():  # torch would turn one into an error of its own
                _save(tensor, part)
                part.replace(self._directory / file)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        return file

    def name_of(self, name: str) -> str | None:
        """A file name that leads nowhere else and that a file can have."""
        file = _safe(name + SUFFIX)
        return file if len(file.encode()) <= LONGEST_NAME else None

    def flush(self) -> None:
        """Each file is complete once it is written."""

    def close(self) -> int:
        """Nothing is open, and there is no header."""
        return 0


class PackedStore:
    """All tensors of a step in one safetensors file.

    Args:
        directory: Where the file lies.
        room: Bytes to keep free for the header.
    """

    def __init__(self, directory: Path, room: int = HEADER_ROOM) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._path = directory / PACKED_FILE
        self._index_path = directory / JOURNAL_FILE
        self._index_path.unlink(missing_ok=True)
        self._start = -(-room // 64) * 64
        self._path.unlink(missing_ok=True)
        self._file = os.fdopen(create(self._path), "wb", buffering=0)
        _write(self._file, b" " * self._start)
        self._end = 0
        self._entries: dict[str, dict[str, Any]] = {}
        self._seen: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._alias: dict[str, str] = {}
        self._dtypes: dict[str, str] = {}
        self._shapes: dict[str, list[int]] = {}

    def name_of(self, name: str) -> str | None:
        """Any name will do inside the file."""
        return name + SUFFIX

    @property
    def header_size(self) -> int:
        """How much room the header takes."""
        return len(json.dumps(self._header())) + 8

    def save(self, name: str, tensor: torch.Tensor) -> str:
        """Append the tensor's bytes, unless the same were stored before."""
        tensor = on_host(tensor)
        data = bytes_of(tensor)
        shape = tuple(tensor.shape)
        dtype = str(tensor.dtype).removeprefix("torch.")
        digest = xxhash.xxh3_128_digest(data)
        if name in self._entries:
            self._rename(name)
        self._alias.pop(name, None)
        first = self._seen.get((digest, dtype, shape))
        if first is not None:
            self._alias[name] = first
            return name + SUFFIX
        size = len(data)
        begin = self._end
        self._append(data)
        self._end += size
        kind = _KINDS.get(tensor.dtype)
        if kind is None:
            self._dtypes[name], self._shapes[name] = dtype, list(shape)
        self._entries[name] = {
            "dtype": kind or "U8",
            "shape": list(shape) if kind else [size],
            "data_offsets": [begin, begin + size],
        }
        self._seen[digest, dtype, shape] = name  # last: interrupted before, nothing refers to nothing
        return name + SUFFIX

    def _append(self, data: Bytes) -> None:
        """Write behind what there is; of a write that fails nothing stays."""
        end = self._start + self._end
        try:
            self._file.seek(end)  # a write that was interrupted may have gone further
            _write(self._file, data)
        except OSError:
            self._file.truncate(end)
            raise

    def _rename(self, name: str) -> None:
        """A second tensor takes this name; the first stays, for those that are stored as the same."""
        number = 0
        while (old := f"{name}~{number}") in self._entries or old in self._alias:
            number += 1
        self._entries[old] = self._entries.pop(name)
        if name in self._dtypes:
            self._dtypes[old], self._shapes[old] = self._dtypes.pop(name), self._shapes.pop(name)
        self._alias = {key: old if value == name else value for key, value in self._alias.items()}
        self._seen = {key: old if value == name else value for key, value in self._seen.items()}

    def flush(self) -> None:
        """Bring the data to the file, and then the index that knows of them."""
        write_text(self._index_path, json.dumps({"data_start": self._start, "header": self._header()}))

    def close(self) -> int:
        """Write the header to the head of the file, making room where it has too little."""
        if self._file.closed:
            return 0
        header = json.dumps(self._header()).encode()
        path = self._path
        with suppress(OSError, UserError) if len(header) + 8 <= self._start else nullcontext():
            self.flush()  # for whoever looks while the header is written; what fits needs no room on the disk
        self._file.close()
        if len(header) + 8 > self._start:
            path = self._copy(-(-(len(header) + 8) // 64) * 64)
        room = self._start - 8
        with os.fdopen(open_file(path, os.O_RDWR), "r+b", buffering=0) as file:
            file.seek(8)
            _write(file, header.ljust(room))
            file.seek(0)  # the length goes last: with it the header counts
            _write(file, room.to_bytes(8, "little"))
        path.replace(self._path)
        self._index_path.unlink(missing_ok=True)
        return len(header) * 5 // 4

    def _header(self) -> dict[str, Any]:
        metadata = {"format": "pt"}
        for key, found in (("alias", self._alias), ("dtype", self._dtypes), ("shape", self._shapes)):
            if found:
                metadata[key] = json.dumps(found)
        return {"__metadata__": metadata, **self._entries}

    def _copy(self, start: int) -> Path:
        """A copy of the file with the data from ``start`` on."""
        copy = self._path.with_name(f".{self._path.name}.part")
        copy.unlink(missing_ok=True)
        try:
            with self._path.open("rb") as source, os.fdopen(create(copy), "wb") as target:
                target.write(b" " * start)
                source.seek(self._start)
                while block := source.read(1 << 22):
                    target.write(block)
        except OSError:
            with suppress(OSError):
                copy.unlink(missing_ok=True)
            raise
        self._start = start
        return copy


class DelayedStore:
    """Keeps copies on the device until the step's end, and only then stores them (``async_dump``)."""

    def __init__(self, store: TensorStore) -> None:
        self._store = store
        self._kept: dict[str, torch.Tensor] = {}

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        """Keep a copy where the tensor is."""
        file = self._store.name_of(name)
        if file is not None:
            self._kept[name] = tensor.detach().clone()
        return file

    def name_of(self, name: str) -> str | None:
        """As the store behind names it."""
        return self._store.name_of(name)

    def flush(self) -> None:
        """Store what was kept."""
        while self._kept:
            name = next(iter(self._kept))
            self._store.save(name, self._kept[name])
            del self._kept[name]
        self._store.flush()

    def close(self) -> int:
        """Store what was kept, and complete it."""
        self.flush()
        return self._store.close()


def _save(tensor: torch.Tensor, path: Path) -> None:
    """Save a ``.pt`` file; where it cannot be written raise the system's error, which torch hides."""
    try:
        with path.open("wb") as file:
            torch.save(tensor, file)
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                raise cause from None
            cause = cause.__context__
        raise


def _write(file: io.FileIO, data: Bytes) -> None:
    """Write all of ``data``: a disk that is nearly full takes a part of it first."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _safe(name: str) -> str:
    """A file name that leads nowhere else."""
    return name.replace("/", "_").replace("\\", "_").replace("\0", "_")
