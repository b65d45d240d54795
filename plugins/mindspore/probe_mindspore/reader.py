"""The reader of runs recorded from MindSpore."""

from __future__ import annotations

from pathlib import Path

from probe_core.store.npy import load_npy
from probe_core.store.run import Run
from probe_core.store.sniff import confidence


class MindSporeReader:
    """Opens runs whose header says mindspore."""

    framework = "mindspore"

    def sniff(self, path: Path) -> int:
        """How sure we are that ``path`` is ours, from 0 (no) to 100 (yes)."""
        return confidence(path, self.framework)

    def open(self, path: Path) -> Run:
        """The run whose records lie in ``path``."""
        return Run(path, self.framework, load_npy)
