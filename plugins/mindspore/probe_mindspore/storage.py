"""The data of tensors: a ``.npy`` file each, as the peer writes and reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from probe_core.files.atomic import replacing
from probe_mindspore.arrays import Array

SUFFIX = ".npy"
LONGEST_NAME = 255


class NpyStore:
    """Writes arrays into one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True, mode=0o750)

    def save(self, name: str, array: Array) -> str | None:
        """Write the file; a name too long for a file is not stored. Its name, or None."""
        file = "".join("_" if c in "/\\\0" else c for c in name) + SUFFIX
        if len(file.encode()) > LONGEST_NAME:
            return None
        with replacing(self._directory / file) as target:
            np.save(target, array, allow_pickle=False)
        return file

    def flush(self) -> None:
        """Each file is complete once it is written."""

    def close(self) -> int:
        """Nothing is open, and there is no header."""
        return 0
