"""Tensor files in memory: memory-mapped where code checks them for changes, otherwise read."""

from __future__ import annotations

import io
import os
from typing import Any, Union

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.files.mapped import MappedFile, describe_truncation, find_mapped_file, get_file_state, get_name

SMALL_FILE = 64 << 10
"""Size in bytes up to which files are read, which is faster than mapping them."""
Memory = Union[bytes, MappedFile]


def open_memory(path: str | os.PathLike[str]) -> Memory:
    """Return the content of a file: mapped, or a copy if it is small or cannot be guarded.

    Raises:
        UnreadableTensor: The file is empty, or changes while it is read.
        OSError: The file cannot be opened or read.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        before = os.fstat(descriptor)
        size = before.st_size
        if size <= SMALL_FILE:  # there are thousands of these, so no further system calls
            content = os.read(descriptor, size)
            if len(content) < size or not size:
                raise UnreadableTensor(describe_truncation(path) if size else f"{get_name(path)} is empty")
            return content
        memory = MappedFile.from_descriptor(descriptor, path)
        if memory is not None:
            return memory
        with io.FileIO(descriptor, closefd=False) as file:
            content = read(file, 0, size, get_name(path))
        if get_file_state(os.fstat(descriptor)) != get_file_state(before):
            raise UnreadableTensor(f"{get_name(path)} was changed while it was read")
        return content
    finally:
        os.close(descriptor)


def read(file: io.FileIO, start: int, size: int, name: str) -> bytes:
    """Return ``size`` bytes of an open file from ``start`` on.

    Raises:
        UnreadableTensor: The file was truncated since its size was read.
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


def check_unchanged(array: np.ndarray[Any, Any]) -> None:
    """Check after copying ``array`` that the mapped file behind it did not change.

    Raises:
        UnreadableTensor: The file was truncated or changed.
    """
    memory = find_mapped_file(array)
    problem = None if memory is None else memory.find_problem()
    if problem is not None:
        raise UnreadableTensor(problem)
