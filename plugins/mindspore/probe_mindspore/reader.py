"""The reader of runs recorded from MindSpore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from probe_recording.api import DumpRun, confidence, load_npy
from probe_recording.reading.memory import check_unchanged

from probe_core.model import Value

BFLOAT16 = "BFloat16"
"""MindSpore's name of bfloat16."""


class MindSporeReader:
    """Reader of runs whose header names MindSpore (docs/formats.md#dump-json)."""

    framework = "mindspore"

    def sniff(self, path: Path) -> int:
        """Return the confidence that ``path`` was recorded from MindSpore, from 0 (no) to 100 (yes)."""
        return confidence(path, self.framework)

    def open(self, path: Path) -> DumpRun:
        """Return the run whose records are in the file ``path``."""
        return MindSporeRun(path, self.framework, load_npy)


class MindSporeRun(DumpRun):
    """A run recorded from MindSpore.

    Its ``.npy`` files hold bfloat16 as float32, or as 16 bits without a name; both are returned as bfloat16.
    """

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """Return the data of a tensor value, memory-mapped if the file allows it.

        Raises:
            UnreadableTensor: The file is missing or damaged.
        """
        array = super().tensor(value)
        if value.dtype != BFLOAT16:
            return array
        import ml_dtypes

        if array.dtype.kind in "Vu" and array.dtype.itemsize == 2:
            return array.view(ml_dtypes.bfloat16)
        if array.dtype != np.float32:
            return array
        narrow = array.astype(ml_dtypes.bfloat16)
        check_unchanged(array)
        return narrow
