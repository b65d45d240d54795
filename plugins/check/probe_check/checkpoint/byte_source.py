"""Blocks of bytes from the files of checkpoints.

Files are not memory-mapped. If a file is truncated while it is read, ``UnreadableCheckpoint`` is raised, and the
process does not receive SIGBUS.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass
from pathlib import Path

from probe_check.checkpoint.errors import UnreadableCheckpoint
from probe_core.files.user_files import check_regular

MAX_OPEN_FILES = 64


class _OpenFiles:
    """The most recently used files, kept open."""

    def __init__(self) -> None:
        self._files: dict[Path, io.FileIO] = {}

    def get(self, path: Path) -> io.FileIO:
        """Return an open file. If too many files are open, close the least recently used file."""
        file = self._files.pop(path, None)
        if file is None:
            check_regular(path)
            if len(self._files) >= MAX_OPEN_FILES:
                self._files.pop(next(iter(self._files))).close()
            file = io.FileIO(path)
        self._files[path] = file
        return file

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()


_open_files = _OpenFiles()


def close_files() -> None:
    """Close all files that are kept open."""
    _open_files.close()


@dataclass(frozen=True, slots=True)
class ByteSource:
    """A range of bytes in a file.

    Attributes:
        path: The file.
        start: The offset of the first byte.
        size: The number of bytes.
    """

    path: Path
    start: int
    size: int

    @classmethod
    def from_path(cls, path: Path) -> ByteSource:
        """Return the whole content of a file.

        Raises:
            UnreadableCheckpoint: The path is not a regular file, or cannot be opened.
        """
        try:
            file = _open_files.get(path)
            return cls(path, 0, os.fstat(file.fileno()).st_size)
        except (OSError, ValueError) as error:
            raise create_read_error(path, error) from None

    def select_range(self, start: int, size: int) -> ByteSource:
        """Return a range within this one; the caller has checked that it is inside."""
        assert 0 <= start <= start + size <= self.size, "a range outside of its file"
        return ByteSource(self.path, self.start + start, size)

    def read(self, start: int, size: int) -> bytearray:
        """Return bytes of the range.

        Raises:
            UnreadableCheckpoint: The file was truncated, or cannot be read.
        """
        assert 0 <= start <= start + size <= self.size, "bytes outside of the range"
        data = bytearray(size)
        view, position = memoryview(data), 0
        try:
            file = _open_files.get(self.path)
            file.seek(self.start + start)
            while position < size:
                count = file.readinto(view[position:])
                if not count:
                    raise UnreadableCheckpoint(self.path, "is cut off: it is shorter than its header states")
                position += count
        except (OSError, ValueError) as error:
            raise create_read_error(self.path, error) from None
        return data


def is_file_name(name: object) -> bool:
    """Return True for the plain name of a file, which cannot lead out of its directory."""
    if not isinstance(name, str) or name in ("", ".", ".."):
        return False
    return not any(character in name for character in "/\\\0")


def create_read_error(path: Path, error: Exception) -> UnreadableCheckpoint:
    """Return the error of a file that the operating system does not open or read."""
    reason = getattr(error, "strerror", None) or "the path is not valid"
    return UnreadableCheckpoint(path, f"cannot be read: {reason}", "Check the path and its permissions.")
