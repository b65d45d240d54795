"""The reader of runs recorded from MindSpore."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from probe_recording import DumpRun, confidence, load_npy

from probe_core.files.mapped import check
from probe_core.model import Value

BFLOAT16 = "BFloat16"


class MindSporeReader:
    """Opens runs whose header says mindspore."""

    framework = "mindspore"

    def sniff(self, path: Path) -> int:
        """How sure we are that ``path`` is ours, from 0 (no) to 100 (yes)."""
        return confidence(path, self.framework)

    def open(self, path: Path) -> DumpRun:
        """The run whose records lie in ``path``."""
        return MindSporeRun(path, self.framework, load_npy)


class MindSporeRun(DumpRun):
    """A run with its bfloat16 tensors as such: ``.npy`` files hold them wider, or as bits without a name."""

    def tensor(self, value: Value) -> np.ndarray[Any, Any]:
        """The data of a tensor value, mapped and not copied where the file allows it.

        Raises:
            UnreadableTensor: no such file, or a file that is not what it claims.
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
        check(array)
        return narrow
