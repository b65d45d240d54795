"""Disks that fail: every write below a directory is counted, and from any one on they can fail.

``with FailingWrites(path) as writes`` only counts; ``FailingWrites(path, errno.ENOSPC, at=7)`` has the
seventh write and all later ones fail. An interrupt can be put at the same places.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import io
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ERRORS = (
    errno.ENOSPC, errno.EROFS, errno.ENOENT, errno.EDQUOT, errno.EMFILE, errno.EACCES, errno.EIO
)  # fmt: skip
OPENS_ONLY = (errno.EMFILE, errno.ENFILE)
"""Errors of writes; with too many open files, the open ones can still be written."""
FUNCTIONS = ("mkdir", "replace", "rename", "unlink", "chmod", "rmdir")


class _File:
    """A file that is open for writing; what changes it is counted."""

    def __init__(self, file: Any, check: Callable[[str], None]) -> None:
        self._file, self._check = file, check

    def write(self, data: Any) -> Any:
        self._check("write")
        return self._file.write(data)

    def truncate(self, size: int | None = None) -> Any:
        self._check("truncate")
        return self._file.truncate(size)

    def flush(self) -> None:
        self._check("flush")
        self._file.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        try:
            self._check("close")
        finally:
            self._file.close()

    def __enter__(self) -> _File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._file)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class FailingWrites:
    """Has the writes below a directory fail, from one on; without an error they are only counted.

    Args:
        root: The directory.
        error: The error's number, or what is called in its place.
        at: The first write that fails, counted from 1.
        times: How many fail; None for all that follow.
        part: Only paths that hold this text count.

    Attributes:
        seen: What was counted: the operation and the path.
    """

    def __init__(
        self,
        root: Path,
        error: int | Callable[[], None] | None = None,
        at: int = 1,
        times: int | None = None,
        part: str = "",
    ) -> None:
        self._root, self._error, self._at, self._times, self._part = str(root), error, at, times, part
        self._patch = pytest.MonkeyPatch()
        self._inside = threading.local()
        self._names: dict[int, str] = {}
        self.seen: list[tuple[str, str]] = []

    @property
    def count(self) -> int:
        """The number of writes so far."""
        return len(self.seen)

    def __enter__(self) -> FailingWrites:
        for name in FUNCTIONS:
            self._patch.setattr(os, name, self._counted(name, getattr(os, name)))
            self._patch.setattr(Path, name, self._counted(name, getattr(Path, name)))
        self._patch.setattr(os, "open", self._opening_descriptor(os.open))
        self._patch.setattr(os, "fdopen", self._of_descriptor(os.fdopen))
        self._patch.setattr(Path, "open", self._opening(Path.open, "r"))
        opening = self._opening(builtins.open, "r")
        self._patch.setattr(builtins, "open", opening)
        self._patch.setattr(io, "open", opening)
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _check(self, operation: str, path: str) -> None:
        self.seen.append((operation, path))
        number = self.count - self._at
        if self._error is None or number < 0 or (self._times is not None and number >= self._times):
            return
        if not isinstance(self._error, int):
            self._error()
        elif self._error not in OPENS_ONLY or operation == "open":
            raise OSError(self._error, os.strerror(self._error), path)

    def _concerns(self, path: Any) -> bool:
        if getattr(self._inside, "now", False) or not isinstance(path, (str, os.PathLike)):
            return False
        text = os.fspath(path)
        if not isinstance(text, str) or self._part not in text:
            return False
        return text == self._root or text.startswith(self._root + os.sep)

    @contextlib.contextmanager
    def _once(self) -> Iterator[None]:
        """Count what pathlib does by way of os once."""
        self._inside.now = True
        try:
            yield
        finally:
            self._inside.now = False

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if not self._concerns(path):
                return function(path, *args, **kwargs)
            if name == "mkdir" and os.path.isdir(path):  # noqa: PTH112 - nothing is written
                return function(path, *args, **kwargs)
            self._check(name, os.fspath(path))
            with self._once():
                return function(path, *args, **kwargs)

        return call

    def _opening(self, function: Callable[..., Any], default: str) -> Callable[..., Any]:
        def opened(path: Any, mode: str = default, *args: Any, **kwargs: Any) -> Any:
            if not self._concerns(path) or not set(mode) & set("wax+"):
                return function(path, mode, *args, **kwargs)
            name = os.fspath(path)
            self._check("open", name)
            with self._once():
                file = function(path, mode, *args, **kwargs)
            return _File(file, lambda operation: self._check(operation, name))

        return opened

    def _opening_descriptor(self, function: Callable[..., int]) -> Callable[..., int]:
        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if not self._concerns(path) or not flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                return function(path, flags, *args, **kwargs)
            name = os.fspath(path)
            self._check("open", name)
            with self._once():
                descriptor = function(path, flags, *args, **kwargs)
            self._names[descriptor] = name
            return descriptor

        return opened

    def _of_descriptor(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def opened(descriptor: int, *args: Any, **kwargs: Any) -> Any:
            file = function(descriptor, *args, **kwargs)
            name = self._names.pop(descriptor, None)
            return file if name is None else _File(file, lambda operation: self._check(operation, name))

        return opened


# -- a disk that is full in earnest -----------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of ``size`` at ``place``; the test is skipped where this process may not mount one."""
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, timeout=20, check=False)
    except OSError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip("mounting a disk takes root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], capture_output=True, timeout=20, check=False)
