"""The reader of runs recorded from PyTorch."""

from __future__ import annotations

from pathlib import Path

from probe_recording import DumpRun, confidence

from probe_pytorch.ptfile import load_pt


class PyTorchReader:
    """Opens runs whose header says pytorch, or says nothing as the oldest recorder does."""

    framework = "pytorch"

    def sniff(self, path: Path) -> int:
        """How sure we are that ``path`` is ours, from 0 (no) to 100 (yes)."""
        return confidence(path, self.framework, without_name=80)

    def open(self, path: Path) -> DumpRun:
        """The run whose records lie in ``path``."""
        return DumpRun(path, self.framework, load_pt)
