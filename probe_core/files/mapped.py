"""Tensor files in memory: mapped where somebody stands guard over the mapping, else read.

A file that is cut off under its mapping ends the process that looks at it, with SIGBUS. A guard, which takes
compiled code and so is a plugin's, lets the process read zeros instead, and notes it. So a file is mapped
only where there is a guard, and only for those who ask for ``Mapped.problem`` once they are done with the
data, and throw away what they made of them where it names one. Everybody else gets a copy, as everybody does
where there is no guard. Windows cuts no mapped file off, and needs none.
"""

from __future__ import annotations

import io
import mmap
import os
import sys
import threading
from typing import Any, Protocol, Union

import numpy as np

from probe_core.errors import UnreadableTensor

__all__ = [
    "SMALL_FILE",
    "Guard",
    "Mapped",
    "Memory",
    "check",
    "mapping_of",
    "memory_of",
    "read",
    "use",
    "watched",
]

SMALL_FILE = 64 << 10
"""Bytes up to which a file is read and not mapped, which is cheaper."""
UNGUARDED = -1


class Guard(Protocol):
    """Lets the process live on where a mapped file is cut off, or its disk fails."""

    def watch(self, memory: mmap.mmap, /) -> int:
        """Guard a mapping from now on; the number that the others take, or -1 where it cannot be guarded."""

    def unwatch(self, number: int, /) -> None:
        """Forget a mapping, before it goes."""

    def torn(self, number: int, /) -> bool:
        """Whether zeros were read of this mapping in the place of what the file held."""


class _Here:
    """The guard of this process."""

    guard: Guard | None = None


def use(guard: Guard | None) -> None:
    """Map files under ``guard`` from now on; None: read them."""
    _Here.guard = guard


class _Watched(threading.local):
    """A block whose arrays are asked for their mapped files, and these for problems, after they were used."""

    on = 0
    """How many such blocks this thread is in."""

    def __enter__(self) -> None:
        self.on += 1

    def __exit__(self, *_: object) -> None:
        self.on -= 1


watched = _Watched()


def _state(found: os.stat_result) -> tuple[int, ...]:
    """What tells whether a file is still what it was: its size and time of change, and which file it is."""
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


class Mapped(mmap.mmap):
    """A mapped file that knows whether it is still what it was.

    Attributes:
        needed: None for a file that is complete. For one that grows, the bytes that must stay.
        file: The file, where it stays open: asking that is quicker than asking the path.
    """

    path: str | os.PathLike[str]
    needed: int | None = None
    file: io.FileIO | None = None
    _guard: Guard | None = None
    _number: int = UNGUARDED
    _state: tuple[int, ...]

    @classmethod
    def of(cls, descriptor: int, path: str | os.PathLike[str]) -> Mapped | None:
        """The open file, mapped; None where nobody guards it.

        Raises:
            OSError: The file cannot be mapped.
            ValueError: It is empty.
        """
        guard = _Here.guard
        if not watched.on or (guard is None and sys.platform != "win32"):
            return None
        state = _state(os.fstat(descriptor))
        memory = cls(descriptor, 0, access=mmap.ACCESS_READ)
        memory.path, memory._state = path, state
        if guard is not None:
            memory._number = guard.watch(memory)
            if memory._number == UNGUARDED:
                return None
            memory._guard = guard
        return memory

    def __del__(self) -> None:
        if self._guard is not None:
            self._guard.unwatch(self._number)
        if self.file is not None:
            self.file.close()

    def problem(self) -> str | None:
        """What happened to the file since it was mapped, in a sentence; None where nothing did."""
        if self._guard is not None and self._guard.torn(self._number):
            return _cut_off(self.path) + ("" if self.size() < len(self) else ", or its disk failed")
        if self.needed is not None:
            return _cut_off(self.path) if self.size() < self.needed else None
        try:
            found = os.stat(self.path) if self.file is None else os.fstat(self.file.fileno())  # noqa: PTH116
            now = _state(found)
        except OSError:  # removed: whoever holds it still has what it held
            now = ()
        if now == self._state:
            return None
        if self.size() < self._state[0]:
            return _cut_off(self.path)
        if now[2:] != self._state[2:]:  # another file has taken its place
            return None
        return f"{_name(self.path)} was changed while it was read"


Memory = Union[bytes, Mapped]


def memory_of(path: str | os.PathLike[str]) -> Memory:
    """The content of a file, mapped or, of small ones or where nobody guards it, copied.

    Raises:
        UnreadableTensor: The file is empty, or changes while it is read.
        OSError: The file cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        before = os.fstat(descriptor)
        size = before.st_size
        if size <= SMALL_FILE:  # there are many thousand: nothing more is asked than it takes
            content = os.read(descriptor, size)
            if len(content) < size or not size:
                raise UnreadableTensor(_cut_off(path) if size else f"{_name(path)} is empty")
            return content
        memory = Mapped.of(descriptor, path)
        if memory is not None:
            return memory
        with io.FileIO(descriptor, closefd=False) as file:
            content = read(file, 0, size, _name(path))
        if _state(os.fstat(descriptor)) != _state(before):
            raise UnreadableTensor(f"{_name(path)} was changed while it was read")
        return content
    finally:
        os.close(descriptor)


def _name(path: str | os.PathLike[str]) -> str:
    return os.path.basename(path)  # noqa: PTH119


def _cut_off(path: str | os.PathLike[str]) -> str:
    return f"{_name(path)} was cut off while it was read"


def read(file: io.FileIO, start: int, size: int, name: str) -> bytes:
    """``size`` bytes of an open file from ``start`` on.

    Raises:
        UnreadableTensor: The file, which was larger when it was looked at, ends before them.
        OSError: The file cannot be read.
    """
    file.seek(start)
    parts: list[bytes] = []
    while size:
        part = file.read(size)
        if not part:
            raise UnreadableTensor(f"{name} was cut off while it was read")
        parts.append(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def mapping_of(array: np.ndarray[Any, Any]) -> Mapped | None:
    """The mapped file behind ``array``, if there is one."""
    owner: Any = array.base
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, Mapped) else None


def check(array: np.ndarray[Any, Any]) -> None:
    """Refuse a copy that was made of ``array`` where something happened to the mapped file behind that.

    Raises:
        UnreadableTensor: The file was cut off or changed.
    """
    memory = mapping_of(array)
    problem = None if memory is None else memory.problem()
    if problem is not None:
        raise UnreadableTensor(problem)
