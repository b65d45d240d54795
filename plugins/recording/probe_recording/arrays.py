"""Values of tensors in host memory: their statistics, checksums and files, all in numpy.

No operator of a device is needed for any of it, so none can be missing.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.files.atomic import DIRECTORY_MODE, replacing
from probe_recording.leaves import NOTHING, Four

Array = np.ndarray[Any, Any]

SUFFIX = ".npy"
LONGEST_NAME = 255
BLOCK = 1 << 18
"""Elements that are converted to float64 at a time."""


def measure(array: Array) -> Four:
    """Max, Min, Mean, Norm in float64 (spec/dump 7).

    NaN among the elements makes all four NaN; infinities are kept. Complex: of the absolute values,
    without norm. bool: any and all. 0-d: the value four times. Empty: None four times.
    """
    if not array.size:
        return NOTHING
    kind = array.dtype.kind
    if kind == "b":
        return bool(array.any()), bool(array.all()), None, None
    if kind not in "iufc":
        return NOTHING
    if kind == "c":
        array = np.abs(array)
    if not array.ndim:
        value = array.item()
        return value, value, value, (None if kind == "c" else value)
    with np.errstate(all="ignore"):
        high, low = array.max().item(), array.min().item()
        mean, norm = _sums(np.ascontiguousarray(array).reshape(-1), max(abs(high), abs(low)))
    return high, low, mean, (None if kind == "c" else norm)


def _sums(flat: Array, largest: float) -> tuple[float, float]:
    """Mean and norm; elements are scaled where their squares leave the range of float64."""
    total = squares = 0.0
    for start in range(0, flat.size, BLOCK):
        wide = flat[start : start + BLOCK].astype(np.float64)
        total += float(wide.sum())
        squares += float(wide @ wide)
    norm = math.sqrt(squares) if squares >= 0 else math.nan
    if math.isfinite(largest) and largest and (math.isinf(squares) or largest < 1e-150):
        scaled = 0.0
        for start in range(0, flat.size, BLOCK):
            wide = flat[start : start + BLOCK].astype(np.float64) / largest
            scaled += float(wide @ wide)
        norm = largest * math.sqrt(scaled)
    return total / flat.size, norm


def crc32(array: Array) -> str:
    """CRC-32 of the bytes in row-major order, as the peers' ``md5`` (spec/dump 7.3): 8 hex digits."""
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def xxh3(array: Array) -> str:
    """64-bit XXH3 of the bytes in row-major order, seed 0: 16 hex digits."""
    import xxhash

    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).tobytes()):016x}"


CHECKSUMS = {"md5": crc32, "xxh3": xxh3}


class NpyStore:
    """A store of one ``.npy`` file a tensor.

    Args:
        directory: The directory of the files; it is made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)

    def save(self, name: str, array: Array) -> str | None:
        """Write the file; its name, or None for a name that is too long for a file."""
        file = "".join("_" if c in "/\\\0" else c for c in name) + SUFFIX
        if len(file.encode()) > LONGEST_NAME:
            return None
        with replacing(self._directory / file) as target:
            np.save(target, array, allow_pickle=False)
        return file

    def flush(self) -> None:
        """Do nothing: each file is complete once it is written."""

    def close(self) -> int:
        """Return 0: nothing is open, and there is no header."""
        return 0
