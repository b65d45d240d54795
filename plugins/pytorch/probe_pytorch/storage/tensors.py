"""Stores for the data of tensors: one ``.pt`` file per tensor, or one safetensors file for all.

The formats are docs/formats.md#tensor-files. The packed file begins with room for its header, which is blank
until the step ends. Until then, and after a crash, ``tensors.index.json`` beside it holds the header and is
replaced as a whole at each flush. Tensors with equal bytes are stored once, because the output of one call is
usually the input of the next.
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
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.interrupts import defer_interrupts
from probe_recording.values.tensor_store import Store

from probe_core.errors import UserError
from probe_core.files.atomic import create_file, open_file, write_text
from probe_pytorch import compat_files
from probe_pytorch.storage.host_bytes import Bytes, copy_to_host, view_bytes

SUFFIX = ".pt"
PART_SUFFIX = ".tensor.part"
MAX_NAME_LENGTH = 255
INITIAL_HEADER_BYTES = 1 << 16
"""Bytes kept free for the header of the first step; later steps keep as much as the last one used."""

_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
for _name, _kind in {"uint64": "U64", "uint32": "U32", "uint16": "U16", "float8_e4m3fn": "F8_E4M3",
                     "float8_e5m2": "F8_E5M2"}.items():  # fmt: skip
    if hasattr(torch, _name):
        _KINDS[getattr(torch, _name)] = _kind


class NamingStore(Store, Protocol):
    """A store that knows the ``data_name`` of a tensor before it is stored."""

    def name_of(self, name: str) -> str | None:
        """Return the ``data_name`` that ``save`` would return."""


class FileStore:
    """A store that writes one ``.pt`` file per tensor, as msprobe writes and reads them.

    Args:
        directory: The directory for the files; it is created.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        """Write one tensor to a file; return None, with nothing written, if the name is too long."""
        file = self.name_of(name)
        if file is None:
            return None
        tensor = copy_to_host(tensor)
        if tensor.untyped_storage().nbytes() != tensor.numel() * tensor.element_size():
            tensor = tensor.clone()
        part = self._directory / PART_SUFFIX  # the archive contains its name: always the same, for equal bytes
        part.unlink(missing_ok=True)
        os.close(create_file(part))
        try:
            with defer_interrupts():  # torch would turn an interrupt into an error of its own
                _save(tensor, part)
                part.replace(self._directory / file)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        return file

    def name_of(self, name: str) -> str | None:
        """Return the file name of a tensor, without path separators; None if it is too long."""
        file = _safe(name + SUFFIX)
        return file if len(file.encode()) <= MAX_NAME_LENGTH else None

    def flush(self) -> None:
        """Do nothing: each file is complete as soon as it is written."""

    def close(self) -> int:
        """Return 0: separate files have no common header that would need room."""
        return 0


class PackedStore:
    """A store that writes all tensors of a step into one safetensors file.

    Args:
        directory: The directory for the file; it is created.
        room: Bytes to keep free for the header.
    """

    def __init__(self, directory: Path, room: int = INITIAL_HEADER_BYTES) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)
        self._path = directory / PACKED_FILE
        self._index_path = directory / JOURNAL_FILE
        self._index_path.unlink(missing_ok=True)
        self._start = -(-room // 64) * 64
        self._path.unlink(missing_ok=True)
        self._file = os.fdopen(create_file(self._path), "wb", buffering=0)
        _write(self._file, b" " * self._start)
        self._end = 0
        self._entries: dict[str, dict[str, Any]] = {}
        self._seen: dict[tuple[bytes, str, tuple[int, ...]], str] = {}
        self._alias: dict[str, str] = {}
        self._dtypes: dict[str, str] = {}
        self._shapes: dict[str, list[int]] = {}
        self._header_text: str | None = None
        self._is_flushed = False

    def name_of(self, name: str) -> str | None:
        """Return the ``data_name`` of a tensor; any name is possible inside the file."""
        return name + SUFFIX

    @property
    def header_size(self) -> int:
        """The size of the header with its length field, in bytes."""
        return len(self._encode_header()) + 8

    def save(self, name: str, tensor: torch.Tensor) -> str:
        """Append the tensor's bytes, unless an equal tensor was stored before."""
        self._header_text, self._is_flushed = None, False
        tensor = copy_to_host(tensor)
        data = view_bytes(tensor)
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
        self._seen[digest, dtype, shape] = name  # last, so that an interrupt leaves no alias without data
        return name + SUFFIX

    def _append(self, data: Bytes) -> None:
        """Append data to the file; remove the partial data if the write fails."""
        end = self._start + self._end
        try:
            self._file.seek(end)  # an interrupted write may have left the position further on
            _write(self._file, data)
        except OSError:
            self._file.truncate(end)
            raise

    def _rename(self, name: str) -> None:
        """Rename the tensor of this name, which a second one takes; aliases go on using the first."""
        number = 0
        while (old := f"{name}~{number}") in self._entries or old in self._alias:
            number += 1
        self._entries[old] = self._entries.pop(name)
        if name in self._dtypes:
            self._dtypes[old], self._shapes[old] = self._dtypes.pop(name), self._shapes.pop(name)
        self._alias = {key: old if value == name else value for key, value in self._alias.items()}
        self._seen = {key: old if value == name else value for key, value in self._seen.items()}

    def flush(self) -> None:
        """Write the index of the data, which are already in the file."""
        if not self._is_flushed:
            write_text(self._index_path, f'{{"data_start": {self._start}, "header": {self._encode_header()}}}')
            self._is_flushed = True

    def close(self) -> int:
        """Write the header to the head of the file, in a copy with more room if necessary.

        Returns:
            Bytes that the file of the next step should keep free for its header.
        """
        if self._file.closed:
            return 0
        header = self._encode_header().encode()
        path = self._path
        with suppress(OSError, UserError) if len(header) + 8 <= self._start else nullcontext():
            self.flush()  # for processes that read meanwhile; a header that fits needs no space on the disk
        self._file.close()
        if len(header) + 8 > self._start:
            path = self._copy(-(-(len(header) + 8) // 64) * 64)
        room = self._start - 8
        with os.fdopen(open_file(path, os.O_RDWR), "r+b", buffering=0) as file:
            file.seek(8)
            _write(file, header.ljust(room))
            file.seek(0)  # the length is written last, because it makes the header valid
            _write(file, room.to_bytes(8, "little"))
        path.replace(self._path)
        self._index_path.unlink(missing_ok=True)
        return len(header) * 5 // 4

    def _encode_header(self) -> str:
        """Return the header as JSON, which is made once for all tensors saved so far."""
        if self._header_text is None:
            metadata = {"format": "pt"}
            for key, entries in (("alias", self._alias), ("dtype", self._dtypes), ("shape", self._shapes)):
                if entries:
                    metadata[key] = json.dumps(entries)
            self._header_text = json.dumps({"__metadata__": metadata, **self._entries})
        return self._header_text

    def _copy(self, start: int) -> Path:
        """Copy the file with its data beginning at ``start``, and return the path of the copy."""
        copy = self._path.with_name(f".{self._path.name}.part")
        copy.unlink(missing_ok=True)
        try:
            with self._path.open("rb") as source, os.fdopen(create_file(copy), "wb") as target:
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
    """A store that keeps copies on the device and stores them at the end of the step (``async_dump``).

    Args:
        store: The store that writes them.
    """

    def __init__(self, store: NamingStore) -> None:
        self._store = store
        self._kept: dict[str, torch.Tensor] = {}

    def save(self, name: str, tensor: torch.Tensor) -> str | None:
        """Keep a copy of a tensor on its device."""
        file = self._store.name_of(name)
        if file is not None:
            self._kept[name] = tensor.detach().clone()
        return file

    def name_of(self, name: str) -> str | None:
        """Return the ``data_name`` that the store behind this one gives."""
        return self._store.name_of(name)

    def flush(self) -> None:
        """Store all kept tensors."""
        while self._kept:
            name = next(iter(self._kept))
            self._store.save(name, self._kept[name])
            del self._kept[name]
        self._store.flush()

    def close(self) -> int:
        """Store all kept tensors and complete the files."""
        self.flush()
        return self._store.close()


def _save(tensor: torch.Tensor, path: Path) -> None:
    """Save a ``.pt`` file; raise the OSError of a failed write, which torch wraps in a RuntimeError."""
    try:
        with path.open("wb") as file:
            torch.save(compat_files.convert_to_savable(tensor), file)
    except RuntimeError as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, OSError):
                raise cause from None
            cause = cause.__context__
        raise


def _write(file: io.FileIO, data: Bytes) -> None:
    """Write all of ``data``, in several writes if the system accepts only a part at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]


def _safe(name: str) -> str:
    """Return a name without characters that would lead to another directory."""
    return name.replace("/", "_").replace("\\", "_").replace("\0", "_")
