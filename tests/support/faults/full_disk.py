"""A disk that takes so many calls and then no more: every way of writing below a directory fails from there on.

Files are written to in small pieces, so that a fault falls within each of them.
"""

from __future__ import annotations

import builtins
import errno
import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PIECE = 512
"""Bytes that reach the disk at a time."""
ERRORS = tuple(getattr(errno, name) for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EMFILE"))


class Disk:
    """The calls of the system that change what is below ``root``.

    Attributes:
        calls: What was asked for so far, in words.
        fails: The number of the first call that fails.
        error: The error that it fails with.
        once: It alone fails, and the disk takes all that comes behind it.
        descriptors: The paths of files that ``os.open`` opened for writing, by their descriptors.
    """

    def __init__(self, root: Path) -> None:
        self._root = str(root)
        self.calls: list[str] = []
        self.fails: int | None = None
        self.error = errno.ENOSPC
        self.once = False
        self.descriptors: dict[int, str] = {}

    def call(self, what: str, path: Any) -> None:
        """Note a call; raises OSError once the disk is full."""
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).startswith(self._root):
            return
        number = len(self.calls)
        self.calls.append(f"{what} {os.fspath(path)[len(self._root) + 1 :]}")
        if self.fails is not None and (number == self.fails or (number > self.fails and not self.once)):
            raise OSError(self.error, os.strerror(self.error), os.fspath(path))


class _File(io.FileIO):
    """A file on such a disk."""

    disk: Disk
    path: str

    def write(self, data: Any) -> int | None:
        self.disk.call("write", self.path)
        return super().write(data)


def _opened(disk: Disk, real: Callable[..., Any]) -> Callable[..., Any]:
    def opening(file: Any, mode: str = "r", buffering: int = -1, *rest: Any, **more: Any) -> Any:
        path = disk.descriptors.get(file) if isinstance(file, int) else os.fspath(file)
        below = isinstance(path, str) and path.startswith(disk._root)
        if not below or not set(mode) & set("wax+"):
            return real(file, mode, buffering, *rest, **more)
        if not isinstance(file, int):
            disk.call("open", file)
        raw = _File(file, mode.replace("b", "").replace("t", ""))
        raw.disk, raw.path = disk, path
        if buffering == 0:
            return raw
        buffered = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, PIECE)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, *rest, **more)

    return opening


@contextmanager
def full_disk(root: Path) -> Iterator[Disk]:
    """All that this process writes below ``root`` while the block runs goes to the disk that it is given."""
    disk = Disk(root)
    with pytest.MonkeyPatch.context() as patch:
        opening = _opened(disk, io.open)
        for place in (io, builtins, Path):
            patch.setattr(place, "open", opening)
        for name in ("mkdir", "chmod", "replace", "rename"):
            patch.setattr(Path, name, _counted(disk, name, getattr(Path, name)))
        real = os.open

        def opened(path: Any, flags: int, *rest: Any, **more: Any) -> int:
            is_written = bool(flags & (os.O_WRONLY | os.O_RDWR))
            if is_written:
                disk.call("open", path)
            descriptor = real(path, flags, *rest, **more)
            disk.descriptors.pop(descriptor, None)
            if is_written and isinstance(path, (str, os.PathLike)):
                disk.descriptors[descriptor] = os.fspath(path)
            return descriptor

        patch.setattr(os, "open", opened)
        yield disk


def _counted(disk: Disk, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    def counted(path: Path, *rest: Any, **more: Any) -> Any:
        disk.call(name, path)
        return real(path, *rest, **more)

    return counted


@contextmanager
def nothing_unraisable() -> Iterator[list[str]]:
    """Collect the complaints of destructors while the block runs, which Python prints with a traceback."""
    said: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda found: said.append(repr(found.exc_value))
    try:
        yield said
    finally:
        sys.unraisablehook = before
