"""Read ``.npy`` files by mapping them; object arrays, which would have to be unpickled, are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor

__all__ = ["load_npy"]


def load_npy(path: Path) -> np.ndarray[Any, Any]:
    """The array in ``path``, mapped read-only.

    Raises:
        UnreadableTensor: The file is damaged, cut off, or holds objects.
        OSError: The file cannot be opened.
    """
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            reader = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, fortran, dtype = reader(file)
            start = file.tell()
    except (ValueError, EOFError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableTensor(f"{path.name} is no .npy file: {text[:120]}") from None
    if dtype.hasobject:
        raise UnreadableTensor(f"{path.name} holds Python objects, which are never loaded")
    count = 1
    for length in shape:
        count *= length
    if any(length < 0 for length in shape) or start + count * dtype.itemsize > size:
        raise UnreadableTensor(f"{path.name} is cut off: its header promises more data than it holds")
    if count == 0:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")
