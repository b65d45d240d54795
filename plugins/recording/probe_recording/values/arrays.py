"""Statistics, checksums and files of tensors in host memory, computed by numpy.

Nothing here runs an operator on a device, so it works for every dtype whatever the device supports.
"""

from __future__ import annotations

import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.files.atomic import DIRECTORY_MODE, replace_file
from probe_recording.values.leaves import NOTHING, Four

Array = np.ndarray[Any, Any]

SUFFIX = ".npy"
MAX_NAME_LENGTH = 255
BLOCK = 1 << 18
"""Number of elements that are converted to float64 at a time."""


def measure(array: Array) -> Four:
    """Return Max, Min, Mean and Norm of an array, accumulated in float64.

    The rules are those of docs/formats.md#statistics: a NaN among the elements makes all four NaN; infinities
    are kept. Complex arrays are measured by their absolute values and have no norm. A bool array has ``any``
    as its maximum and ``all`` as its minimum. A 0-d array gives its value four times, an empty one None.
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
        mean, norm = _compute_mean_and_norm(np.ascontiguousarray(array).reshape(-1), max(abs(high), abs(low)))
    return high, low, mean, (None if kind == "c" else norm)


def _compute_mean_and_norm(flat: Array, largest: float) -> tuple[float, float]:
    """Return mean and norm; scale the elements first if their squares leave the range of float64."""
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
    """Return the CRC-32 of the bytes in row-major order as 8 hex digits.

    msprobe calls this checksum ``md5``; see docs/formats.md#checksums.
    """
    return f"{zlib.crc32(np.ascontiguousarray(array).tobytes()):08x}"


def xxh3(array: Array) -> str:
    """Return the 64-bit XXH3 hash (seed 0) of the bytes in row-major order as 16 hex digits."""
    import xxhash

    return f"{xxhash.xxh3_64_intdigest(np.ascontiguousarray(array).tobytes()):016x}"


CHECKSUMS = {"md5": crc32, "xxh3": xxh3}


class NpyStore:
    """A store that writes one ``.npy`` file per tensor.

    Args:
        directory: The directory for the files; it is created.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=DIRECTORY_MODE)

    def save(self, name: str, array: Array) -> str | None:
        """Write one tensor to a file.

        Args:
            name: The name of the tensor, without suffix.
            array: Its data.

        Returns:
            The name of the file; None, with nothing written, if the name is too long for a file.
        """
        file = "".join("_" if c in "/\\\0" else c for c in name) + SUFFIX
        if len(file.encode()) > MAX_NAME_LENGTH:
            return None
        with replace_file(self._directory / file) as target:
            np.save(target, array, allow_pickle=False)
        return file

    def flush(self) -> None:
        """Do nothing: each file is complete as soon as it is written."""

    def close(self) -> int:
        """Return 0: separate files have no common header that would need room."""
        return 0
