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
import mmap
import os
import stat
import sys
import threading
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Union

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import MappedFile, allow_mapping
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE
from probe_recording.reading.entries import TensorEntry, parse_entries, parse_json_object, view_array
from probe_recording.reading.memory import check_unchanged, read

MAX_HEADER_BYTES = 256 << 20
MAX_MAPPED_BYTES = 64 << 20
"""Bytes handed out before the mapped pages are released; the system reloads a page that is used again."""


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


Memory = Union[MappedFile, _Stretches]


class _Content(NamedTuple):
    """The content of an opened file; a wrong entry is replaced by a text on its error."""

    memory: Memory
    entries: dict[str, TensorEntry | str]


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
        memory = content.memory
        buffer: Any = memory
        if not isinstance(memory, MappedFile):
            try:
                buffer = memory[entry.start : entry.stop]
            except OSError as error:
                raise UnreadableTensor(f"{PACKED_FILE} cannot be read: {error.strerror or error}") from None
            except MemoryError:
                raise UnreadableTensor(f"{name} does not fit into the memory there is") from None
        array = view_array(entry, name, buffer, entry.start if buffer is memory else 0, PACKED_FILE)
        if 0 in entry.shape:
            return array
        if not isinstance(memory, MappedFile):
            return array if sys.byteorder == "little" else array.byteswap()
        self._release_pages(memory, array.nbytes)
        if allow_mapping.on and sys.byteorder == "little":
            return array
        copy: np.ndarray[Any, Any] = array.copy() if sys.byteorder == "little" else array.byteswap()
        copy.setflags(write=False)
        check_unchanged(array)
        return copy

    def _release_pages(self, memory: MappedFile, size: int) -> None:
        """Release the mapped pages from time to time, so that memory does not grow with the file."""
        self._handed_out += size
        if self._handed_out > MAX_MAPPED_BYTES:
            self._handed_out = size
            if sys.platform == "linux":
                memory.madvise(mmap.MADV_DONTNEED)


# -- the header ------------------------------------------------------------------------------------


def _read(directory: Path) -> _Content:
    journal = _read_journal(directory)  # read first, so that the file mapped later holds everything it lists
    path = place_in(directory, PACKED_FILE)
    with ExitStack() as unless_read:
        file = unless_read.enter_context(io.FileIO(path))
        if not os.fstat(file.fileno()).st_size:
            raise UnreadableTensor(f"{PACKED_FILE} is empty")
        memory: Memory = MappedFile.from_descriptor(file.fileno(), path) or _Stretches(file, complete=journal is None)
        start, header = journal if journal and not _has_moved(memory, journal[0]) else _read_header(memory)
        if start > len(memory):
            raise UnreadableTensor(f"{PACKED_FILE} is cut off: it ends before its data begin")
        entries = parse_entries(header, start, len(memory) - start, PACKED_FILE)
        if isinstance(memory, MappedFile):
            memory.file = file
            if journal:
                ends = [entry.stop for entry in entries.values() if isinstance(entry, TensorEntry)]
                memory.needed = max(ends, default=0)
        unless_read.pop_all()
    return _Content(memory, entries)


def _read_journal(directory: Path) -> tuple[int, dict[str, Any]] | None:
    """Return the offset of the data and the header from the journal; None if there is no journal."""
    try:
        path = Path(place_in(directory, JOURNAL_FILE))
        if path.stat().st_size > MAX_HEADER_BYTES:
            raise UnreadableTensor(f"{JOURNAL_FILE} is larger than any that a recorder writes")
        journal = parse_json_object(path.read_bytes(), JOURNAL_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableTensor(f"{JOURNAL_FILE} cannot be read: {error.strerror or error}") from None
    start, header = journal.get("data_start"), journal.get("header")
    if type(start) is not int or start < 0:
        raise UnreadableTensor(f'{JOURNAL_FILE} is damaged: its "data_start" is not a non-negative integer')
    if not isinstance(header, dict):
        raise UnreadableTensor(f'{JOURNAL_FILE} is damaged: its "header" is not a JSON object')
    return start, header


def _has_moved(memory: Memory, start: int) -> bool:
    """Return True if the data no longer begin at ``start``, although the journal says so.

    A recorder whose header outgrew its room writes a copy with more room, replaces the file by it and then
    removes the journal. It may be killed, or the file may be read, between the last two.
    """
    header_end = 8 + int.from_bytes(memory[:8], "little")
    return header_end != start and 8 < header_end <= len(memory)


def _read_header(memory: Memory) -> tuple[int, dict[str, Any]]:
    """Return the offset of the data and the header from the head of the file."""
    length = int.from_bytes(memory[:8], "little")
    start = 8 + length
    if memory[:8] in (bytes(8), b" " * 8):
        raise UnreadableTensor(f"{PACKED_FILE} has no header: its recording ended before the first flush")
    if length > MAX_HEADER_BYTES:
        raise UnreadableTensor(f"{PACKED_FILE} is damaged: it claims a header of {length} bytes")
    if start > len(memory):
        raise UnreadableTensor(f"{PACKED_FILE} is cut off within its header")
    return start, parse_json_object(memory[8:start], f"the header of {PACKED_FILE}")
