"""Tensor files in memory: mapped where somebody stands guard over the mapping, else read.

A file that is cut off under its mapping ends the process that looks at it, with SIGBUS. A guard, which takes
compiled code and so is a plugin's, lets the process read zeros instead, and notes it. So a file is mapped
only where there is a guard, and only for those who ask ``problem_of`` once they are done with the data, and
throw away what they made of them where it names a problem. Everybody else gets a copy, as everybody does
where there is no guard. Windows cuts no mapped file off, and needs none.
"""

from __future__ import annotations

import io
import mmap
import os
import sys
import threading
from typing import Any, NamedTuple, Protocol, Union

import numpy as np

from probe_core.errors import UnreadableTensor

__all__ = [
    "SMALL_FILE",
    "Guard",
    "Mapped",
    "Memory",
    "check",
    "memory_of",
    "problem_of",
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
    """A block whose arrays are given to ``problem_of`` once nobody looks at them any more."""

    on = 0
    """How many such blocks this thread is in."""

    def __enter__(self) -> None:
        self.on += 1

    def __exit__(self, *_: object) -> None:
        self.on -= 1


watched = _Watched()


class _State(NamedTuple):
    """What tells whether a file is still what it was."""

    device: int
    inode: int
    size: int
    changed: int

    @classmethod
    def of(cls, found: os.stat_result) -> _State:
        return cls(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Mapped(mmap.mmap):
    """A mapped file that knows whether it is still what it was.

    Attributes:
        needed: None for a file that is complete. For one that grows, the bytes that must stay.
    """

    path: str | os.PathLike[str]
    name: str
    needed: int | None = None
    _guard: Guard | None = None
    _number: int = UNGUARDED
    _state: _State

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
        state = _State.of(os.fstat(descriptor))
        memory = cls(descriptor, 0, access=mmap.ACCESS_READ)
        memory.path, memory.name, memory._state = path, os.path.basename(path), state  # noqa: PTH119
        if guard is not None:
            memory._number = guard.watch(memory)
            if memory._number == UNGUARDED:
                return None
            memory._guard = guard
        return memory

    def __del__(self) -> None:
        if self._guard is not None:
            self._guard.unwatch(self._number)

    def problem(self) -> str | None:
        """What happened to the file since it was mapped, in a sentence; None where nothing did."""
        if self._guard is not None and self._guard.torn(self._number):
            if self.size() < len(self):
                return f"{self.name} was cut off while it was read"
            return f"{self.name} was cut off while it was read, or its disk failed"
        if self.needed is not None:
            return f"{self.name} was cut off while it was read" if self.size() < self.needed else None
        try:
            now = _State.of(os.stat(self.path))  # noqa: PTH116
        except OSError:  # removed: whoever holds it still has what it held
            now = None
        if now == self._state:
            return None
        if self.size() < self._state.size:
            return f"{self.name} was cut off while it was read"
        if now is None or now[:2] != self._state[:2]:  # another file has taken its place
            return None
        return f"{self.name} was changed while it was read"


Memory = Union[bytes, Mapped]


def memory_of(path: str | os.PathLike[str]) -> Memory:
    """The content of a file, mapped or, of small ones or where nobody guards it, copied.

    Raises:
        UnreadableTensor: The file is empty, or changes while it is read.
        OSError: The file cannot be opened or read.
    """
    name = os.path.basename(path)  # noqa: PTH119
    with io.FileIO(path) as file:
        state = _State.of(os.fstat(file.fileno()))
        if not state.size:
            raise UnreadableTensor(f"{name} is empty")
        if state.size > SMALL_FILE:
            memory = Mapped.of(file.fileno(), path)
            if memory is not None:
                return memory
        content = read(file, 0, state.size, name)
        if _State.of(os.fstat(file.fileno())) != state:
            raise UnreadableTensor(f"{name} was changed while it was read")
        return content


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


def problem_of(array: np.ndarray[Any, Any]) -> str | None:
    """What happened to the mapped file behind ``array``; None where nothing did, or nothing is mapped."""
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner.problem() if isinstance(owner, Mapped) else None


def check(array: np.ndarray[Any, Any]) -> None:
    """Refuse a copy that was made of ``array`` where something happened to the mapped file behind that.

    Raises:
        UnreadableTensor: The file was cut off or changed.
    """
    problem = problem_of(array)
    if problem is not None:
        raise UnreadableTensor(problem)
