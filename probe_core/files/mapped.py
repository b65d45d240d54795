"""Tensor files in memory: memory-mapped if a guard is installed, otherwise read.

If a mapped file is truncated, reading it kills the process with SIGBUS. A guard (compiled code of a plugin)
lets the process read zeros instead and notes that. Therefore files are mapped only under a guard and in a
block of ``allow_mapping``, whose code must call ``MappedFile.find_problem`` after using the data and discard
its results if there is one. All other code gets a copy. Windows does not truncate mapped files, and needs no guard.
"""

from __future__ import annotations

import io
import mmap
import os
import sys
import threading
from typing import Any, Protocol

import numpy as np

UNGUARDED_NUMBER = -1


class Guard(Protocol):
    """A signal handler that keeps the process alive if a mapped file is truncated or its disk fails."""

    def watch(self, memory: mmap.mmap, /) -> int:
        """Guard a mapping; return its number for the other methods, or -1 if it cannot be guarded."""

    def unwatch(self, number: int, /) -> None:
        """Forget a mapping before it is closed."""

    def torn(self, number: int, /) -> bool:
        """Return True if zeros were read in place of the file's content."""


class _GuardHolder:
    """The guard of this process."""

    guard: Guard | None = None


def install_guard(guard: Guard | None) -> None:
    """Map files under ``guard`` from now on; None to read them instead."""
    _GuardHolder.guard = guard


class _MappingContext(threading.local):
    """A context in which files may be mapped; its code checks the mapped files for problems after use."""

    on = 0
    """Number of such blocks that this thread is in."""

    def __enter__(self) -> None:
        self.on += 1

    def __exit__(self, *_: object) -> None:
        self.on -= 1


allow_mapping = _MappingContext()


def get_file_state(status: os.stat_result) -> tuple[int, ...]:
    """Return the size, time of change and identity of a file, to detect changes."""
    return status.st_size, status.st_mtime_ns, status.st_ino, status.st_dev


class MappedFile(mmap.mmap):
    """A memory-mapped file that can tell whether it was changed since.

    Attributes:
        needed: The number of bytes that must stay, for a file that grows; None for a complete file.
        file: The open file, if it stays open, which is faster to check than its path.
    """

    path: str | os.PathLike[str]
    needed: int | None = None
    file: io.FileIO | None = None
    _guard: Guard | None = None
    _number: int = UNGUARDED_NUMBER
    _state: tuple[int, ...]

    @classmethod
    def from_descriptor(cls, descriptor: int, path: str | os.PathLike[str]) -> MappedFile | None:
        """Map an open file; return None if it cannot be guarded.

        Raises:
            OSError: The file cannot be mapped.
            ValueError: The file is empty.
        """
        guard = _GuardHolder.guard
        if not allow_mapping.on or (guard is None and sys.platform != "win32"):
            return None
        state = get_file_state(os.fstat(descriptor))
        memory = cls(descriptor, 0, access=mmap.ACCESS_READ)
        memory.path, memory._state = path, state
        if guard is not None:
            memory._number = guard.watch(memory)
            if memory._number == UNGUARDED_NUMBER:
                return None
            memory._guard = guard
        return memory

    def __del__(self) -> None:
        if self._guard is not None:
            self._guard.unwatch(self._number)
        if self.file is not None:
            self.file.close()

    def find_problem(self) -> str | None:
        """Return a sentence on the change of the file since it was mapped; None if it did not change."""
        if self._guard is not None and self._guard.torn(self._number):
            return describe_truncation(self.path) + ("" if self.size() < len(self) else ", or its disk failed")
        if self.needed is not None:
            return describe_truncation(self.path) if self.size() < self.needed else None
        try:
            status = os.stat(self.path) if self.file is None else os.fstat(self.file.fileno())  # noqa: PTH116
            now = get_file_state(status)
        except OSError:  # removed, which leaves the mapping intact
            now = ()
        if now == self._state:
            return None
        if self.size() < self._state[0]:
            return describe_truncation(self.path)
        if now[2:] != self._state[2:]:  # replaced by another file, which leaves the mapping intact
            return None
        return f"{get_name(self.path)} was changed while it was read"


def get_name(path: str | os.PathLike[str]) -> str:
    """Return the name of a file in messages."""
    return os.path.basename(path)  # noqa: PTH119


def describe_truncation(path: str | os.PathLike[str]) -> str:
    """Return the sentence on a file that was truncated."""
    return f"{get_name(path)} was cut off while it was read"


def find_mapped_file(array: np.ndarray[Any, Any]) -> MappedFile | None:
    """Return the mapped file behind ``array``; None if there is none."""
    owner = find_memory_owner(array)
    return owner if isinstance(owner, MappedFile) else None


def find_memory_owner(array: np.ndarray[Any, Any]) -> Any:
    """Return the object that holds the memory of ``array``."""
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner
