"""Reading of ``.npy`` files without unpickling; arrays of Python objects are rejected."""

from __future__ import annotations

import os
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_recording.reading.memory import open_memory

__all__ = ["load_npy"]


def load_npy(file_name: str | os.PathLike[str]) -> np.ndarray[Any, Any]:
    """Return the read-only array in a file, memory-mapped if that is safe.

    Raises:
        UnreadableTensor: The file is damaged, cut off, or holds Python objects.
        OSError: The file cannot be opened.
    """
    path = Path(file_name)
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version not in ((1, 0), (2, 0), (3, 0)):
                raise ValueError(f"version {version} is not known")
            reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = reader(file)
            start = file.tell()
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError, TokenError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableTensor(f"{path.name} is no .npy file: {text[:120]}") from None
    if dtype.hasobject:
        raise UnreadableTensor(f"{path.name} holds Python objects, which are never loaded")
    if dtype.itemsize == 0 or len(shape) > 32 or any(type(length) is not int for length in shape):
        raise UnreadableTensor(f"{path.name} is damaged: no tensor has such elements or such a shape")
    count = 1
    for length in shape:
        count *= length
    if any(length < 0 for length in shape) or start + count * dtype.itemsize > size:
        raise UnreadableTensor(f"{path.name} is cut off: its header promises more data than it holds")
    try:
        if count == 0:
            return np.empty(shape, dtype)
        memory = open_memory(path)
        if start + count * dtype.itemsize > len(memory):
            raise UnreadableTensor(f"{path.name} was cut off while it was read")
        array: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, start, None, "F" if fortran else "C")
        return array
    except (ValueError, TypeError, OverflowError, MemoryError) as error:
        raise UnreadableTensor(f"{path.name} is damaged: {error}") from None
