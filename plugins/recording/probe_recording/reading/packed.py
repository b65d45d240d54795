"""Reading of the packed store: the tensors of a rank and step in one safetensors file, opened once.

The format is docs/formats.md#tensor-files. The file begins with the length of its header, eight bytes
little-endian, and the header, a JSON object that gives the element type, shape and place of each tensor
in the data behind it. Three keys of its ``__metadata__``, JSON objects as texts, are probe's own: ``alias``
maps names of tensors to the names that they are stored under, ``dtype`` and ``shape`` describe U8 entries
whose element type safetensors lacks. While a recording goes on, the head of the file is not final; a journal
beside it then holds the header and the offset of the data.

A file may come from a stranger, so everything is checked before it is used: an error in one entry makes
that tensor unreadable, an error in the header the whole file.
"""

from __future__ import annotations

import io
import json
import mmap
import os
import stat
import sys
import threading
from functools import cached_property, lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Union

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import Mapped, watched
from probe_core.store.files import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.memory import check_unchanged, read

LARGEST_HEADER = 256 << 20
MOST_DIMENSIONS = 32
KEPT_MAPPED = 64 << 20
"""Bytes handed out before the mapped pages are released; the system reloads a page that is used again."""

_PLAIN = {
    "float64": 8, "float32": 4, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1,
    "uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1, "complex64": 8, "complex128": 16,
}  # fmt: skip
_EXTENDED = {
    "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e8m0fnu": 1, "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1, "float8_e4m3b11fnuz": 1, "float8_e4m3": 1, "float8_e3m4": 1,
}  # fmt: skip
_SIZES = {**_PLAIN, **_EXTENDED}
"""Bytes per element, by the name of the dtype in numpy or ml_dtypes."""

_CODES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "I64": "int64",
    "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16",
    "U8": "uint8", "BOOL": "bool", "C64": "complex64", "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2", "F8_E8M0": "float8_e8m0fnu", "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
}  # fmt: skip


class _Entry(NamedTuple):
    """A checked entry of the header: dtype, shape and offset in the file, in bytes."""

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """The offset of the tensor's end in the file, in bytes."""
        return self.start + prod(self.shape) * _SIZES[self.dtype]


class _Stretches:
    """A file that is read piece by piece, for systems or files that cannot be mapped.

    Args:
        file: The open file.
        complete: True if its recording has ended; a change of the file is then an error.
    """

    def __init__(self, file: io.FileIO, complete: bool) -> None:
        self._file = file
        self._size, self._changed = self._state()
        self._complete = complete
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, place: slice) -> bytes:
        start, stop, _ = place.indices(self._size)
        with self._lock:
            content = read(self._file, start, max(0, stop - start), PACKED_FILE)
        if self._complete and self._state() != (self._size, self._changed):
            raise UnreadableTensor(f"{PACKED_FILE} was changed while it was read")
        return content

    def _state(self) -> tuple[int, int]:
        status = os.fstat(self._file.fileno())
        return status.st_size, status.st_mtime_ns

    def __del__(self) -> None:
        self._file.close()


Memory = Union[Mapped, _Stretches]


class _Content(NamedTuple):
    """The content of an opened file; a wrong entry is replaced by a text on its error."""

    memory: Memory
    entries: dict[str, _Entry | str]


def place_in(directory: str | Path, name: str) -> str:
    """Return the path of the regular file ``name`` in ``directory``.

    Raises:
        UnreadableTensor: It is a link out of the directory, or no regular file.
        OSError: There is no such file, or it cannot be accessed.
        ValueError: No file can have this name.
    """
    path = f"{directory}{os.sep}{name}"  # for many thousand files; pathlib takes ten times as long
    kind = os.lstat(path).st_mode
    if stat.S_ISLNK(kind):
        if os.path.realpath(directory) != os.path.dirname(os.path.realpath(path)):  # noqa: PTH120
            raise UnreadableTensor(f"{name} points outside the run directory")
        kind = os.stat(path).st_mode  # noqa: PTH116
    if not stat.S_ISREG(kind):
        raise UnreadableTensor(f"{name} is not a regular file")
    return path


class PackedTensors:
    """The packed file of a directory, opened on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._handed_out = 0

    @classmethod
    def find(cls, directory: Path) -> PackedTensors | None:
        """Return the packed file in ``directory``, or None if there is none."""
        return cls(directory) if os.path.lexists(directory / PACKED_FILE) else None

    @cached_property
    def _content(self) -> _Content | str:
        """The content of the file, or a sentence on why nothing in it can be read."""
        try:
            return _read(self._directory)
        except UnreadableTensor as error:
            return str(error)
        except (MemoryError, OverflowError):
            return f"{PACKED_FILE} is damaged: it cannot be read within the memory there is"
        except (OSError, ValueError) as error:
            return f"{PACKED_FILE} cannot be read: {getattr(error, 'strerror', None) or error}"

    @property
    def problem(self) -> str | None:
        """A sentence on why nothing in the file can be read; None if the header is sound."""
        return self._content if isinstance(self._content, str) else None

    def __contains__(self, name: str) -> bool:
        content = self._content
        return not isinstance(content, str) and name in content.entries

    def load(self, name: str) -> np.ndarray[Any, Any]:
        """Return the tensor ``name`` as a read-only array, a view of the file if that is mapped.

        bfloat16 and float8 are returned in the dtypes of ml_dtypes.

        Raises:
            UnreadableTensor: There is no such tensor, or its data contradict the header.
        """
        content = self._content
        if isinstance(content, str):
            raise UnreadableTensor(content)
        entry = content.entries.get(name)
        if entry is None:
            raise UnreadableTensor(f"{PACKED_FILE} holds no {name}", missing=True)
        if isinstance(entry, str):
            raise UnreadableTensor(f"{PACKED_FILE} is damaged: {name} {entry}")
        try:
            dtype = _dtype(entry.dtype)
            if 0 in entry.shape:
                array: np.ndarray[Any, Any] = np.empty(entry.shape, dtype)
                array.setflags(write=False)
                return array
            memory = content.memory
            if isinstance(memory, Mapped):
                array = np.ndarray(entry.shape, dtype, memory, entry.start)
            else:
                size = prod(entry.shape) * dtype.itemsize
                array = np.ndarray(entry.shape, dtype, memory[entry.start : entry.start + size])
        except (ImportError, AttributeError):
            raise UnreadableTensor(
                f"{name} holds {entry.dtype}, which needs the package ml_dtypes (0.5 or later) to be read: "
                'pip install "ml_dtypes>=0.5"'
            ) from None
        except OSError as error:
            raise UnreadableTensor(f"{PACKED_FILE} cannot be read: {error.strerror or error}") from None
        except (ValueError, TypeError, OverflowError, MemoryError):
            raise UnreadableTensor(
                f"{PACKED_FILE} is damaged: {name} has a shape that no array can have"
            ) from None
        if not isinstance(memory, Mapped):
            return array if sys.byteorder == "little" else array.byteswap()
        self._let_go(memory, array.nbytes)
        if watched.on and sys.byteorder == "little":
            return array
        copy: np.ndarray[Any, Any] = array.copy() if sys.byteorder == "little" else array.byteswap()
        copy.setflags(write=False)
        check_unchanged(array)
        return copy

    def _let_go(self, memory: Mapped, size: int) -> None:
        """Release the mapped pages from time to time, so that memory does not grow with the file."""
        self._handed_out += size
        if self._handed_out > KEPT_MAPPED:
            self._handed_out = size
            if sys.platform == "linux":
                memory.madvise(mmap.MADV_DONTNEED)


@lru_cache(maxsize=64)
def _dtype(name: str) -> np.dtype[Any]:
    if name in _PLAIN:
        return np.dtype(name)
    import ml_dtypes  # not declared as a dependency: plugins whose framework records such types bring it

    extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return extended


# -- the header ------------------------------------------------------------------------------------


def _read(directory: Path) -> _Content:
    journal = _journal(directory)  # read first, so that the file mapped later holds everything it lists
    path = place_in(directory, PACKED_FILE)
    file = io.FileIO(path)
    if not os.fstat(file.fileno()).st_size:
        raise UnreadableTensor(f"{PACKED_FILE} is empty")
    memory: Memory = Mapped.of(file.fileno(), path) or _Stretches(file, complete=journal is None)
    start, header = journal if journal and not _moved(memory, journal[0]) else _header(memory)
    if start > len(memory):
        raise UnreadableTensor(f"{PACKED_FILE} is cut off: it ends before its data begin")
    entries = _entries(header, start, len(memory) - start)
    if isinstance(memory, Mapped):
        memory.file = file
        if journal:
            ends = [entry.stop for entry in entries.values() if isinstance(entry, _Entry)]
            memory.needed = max(ends, default=0)
    return _Content(memory, entries)


def _journal(directory: Path) -> tuple[int, dict[str, Any]] | None:
    """Return the offset of the data and the header from the journal; None if there is no journal."""
    try:
        path = Path(place_in(directory, JOURNAL_FILE))
        if path.stat().st_size > LARGEST_HEADER:
            raise UnreadableTensor(f"{JOURNAL_FILE} is larger than any that a recorder writes")
        journal = _object(path.read_bytes(), JOURNAL_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableTensor(f"{JOURNAL_FILE} cannot be read: {error.strerror or error}") from None
    start, header = journal.get("data_start"), journal.get("header")
    if type(start) is not int or start < 0:
        raise UnreadableTensor(f'{JOURNAL_FILE} is damaged: its "data_start" is no whole number from 0 on')
    if not isinstance(header, dict):
        raise UnreadableTensor(f'{JOURNAL_FILE} is damaged: its "header" is not a JSON object')
    return start, header


def _moved(memory: Memory, start: int) -> bool:
    """Return True if the data no longer begin at ``start``, although the journal says so.

    A recorder whose header outgrew its room writes a copy with more room, replaces the file by it and then
    removes the journal. It may be killed, or the file may be read, between the last two.
    """
    own = 8 + int.from_bytes(memory[:8], "little")
    return own != start and 8 < own <= len(memory)


def _header(memory: Memory) -> tuple[int, dict[str, Any]]:
    """Return the offset of the data and the header from the head of the file."""
    length = int.from_bytes(memory[:8], "little")
    start = 8 + length
    if memory[:8] in (bytes(8), b" " * 8):
        raise UnreadableTensor(f"{PACKED_FILE} has no header: its recording ended before the first flush")
    if length > LARGEST_HEADER:
        raise UnreadableTensor(f"{PACKED_FILE} is damaged: it claims a header of {length} bytes")
    if start > len(memory):
        raise UnreadableTensor(f"{PACKED_FILE} is cut off within its header")
    return start, _object(memory[8:start], f"the header of {PACKED_FILE}")


def _object(data: bytes | str, what: str) -> dict[str, Any]:
    try:
        text = data if isinstance(data, str) else data.decode()
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise UnreadableTensor(f"{what} is not valid JSON") from None
    if not isinstance(value, dict):
        raise UnreadableTensor(f"{what} is not a JSON object")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _entries(header: dict[str, Any], start: int, size: int) -> dict[str, _Entry | str]:
    """Return the entries of a header by all names of their tensors.

    Args:
        header: The JSON object; it is changed.
        start: The offset of the data, in bytes.
        size: Bytes of data in the file.
    """
    metadata = header.pop("__metadata__", None)
    if metadata is not None and not isinstance(metadata, dict):
        raise UnreadableTensor(f"{PACKED_FILE} is damaged: its metadata are not a JSON object")
    alias, dtypes, shapes = (_own(metadata or {}, key) for key in ("alias", "dtype", "shape"))
    entries: dict[str, _Entry | str] = header
    for name, fields in header.items():
        try:
            entry = _entry(fields, start, size)
            if name in dtypes:
                entry = _extended(entry, dtypes[name], shapes.get(name))
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


def _own(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    text = metadata.get(key, "{}")
    if not isinstance(text, str):
        raise UnreadableTensor(f'{PACKED_FILE} is damaged: "{key}" of its metadata is no text')
    return _object(text, f'"{key}" of the metadata of {PACKED_FILE}')


def _entry(fields: Any, start: int, size: int) -> _Entry:
    """Return a checked entry of the header.

    Raises:
        ValueError: The entry is wrong; the text continues a sentence that begins with the tensor's name.
    """
    if not isinstance(fields, dict):
        raise ValueError("is not described by a JSON object")
    code, offsets = fields.get("dtype"), fields.get("data_offsets")
    dtype = _CODES.get(code) if isinstance(code, str) else None
    if dtype is None:
        raise ValueError(_unknown(code))
    shape = _shape(fields.get("shape"))
    if not isinstance(offsets, list) or [type(offset) for offset in offsets[:3]] != [int, int]:
        raise ValueError("has no pair of whole numbers for its place in the data")
    begin, end = offsets
    if not 0 <= begin <= end:
        raise ValueError("ends before it begins, or begins before the data do")
    if end > size:
        raise ValueError("reaches beyond the end of the file, which may have been cut off")
    if prod(shape) * _SIZES[dtype] != end - begin:
        raise ValueError("takes more or fewer bytes than its shape and element type say")
    return _Entry(dtype, shape, start + begin)


def _extended(entry: _Entry, dtype: Any, shape: Any) -> _Entry:
    """Return a U8 entry with the dtype and shape that it stands for.

    Raises:
        ValueError: They contradict the entry; the text continues a sentence that begins with its name.
    """
    if not isinstance(dtype, str) or dtype not in _SIZES:
        raise ValueError(_unknown(dtype))
    if entry.dtype != "uint8" or len(entry.shape) != 1:
        raise ValueError(f"holds {dtype} and is not stored as a row of bytes")
    sizes = _shape(shape)
    if prod(sizes) * _SIZES[dtype] != entry.shape[0]:
        raise ValueError("takes more or fewer bytes than its shape and element type say")
    return _Entry(dtype, sizes, entry.start)


def _unknown(dtype: Any) -> str:
    if not isinstance(dtype, str):
        return "has no element type, or one that is no text"
    return f'has the element type "{dtype[:20]}", which is not known'


def _shape(sizes: Any) -> tuple[int, ...]:
    if not isinstance(sizes, list):
        raise ValueError("has no list of sizes for a shape")
    if len(sizes) > MOST_DIMENSIONS:
        raise ValueError(f"has more than {MOST_DIMENSIONS} dimensions")
    if any(type(size) is not int or size < 0 for size in sizes):
        raise ValueError("has a size in its shape that is no whole number from 0 on")
    return tuple(sizes)
