"""The reader of runs recorded from PyTorch."""

from __future__ import annotations

from pathlib import Path

from probe_recording import DumpRun, confidence

from probe_pytorch.ptfile import load_pt


class PyTorchReader:
    """A reader of runs whose header names pytorch, or no framework as in runs of msprobe 1.0."""

    framework = "pytorch"

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that a record file was recorded from PyTorch."""
        return confidence(path, self.framework, without_name=80)

    def open(self, path: Path) -> DumpRun:
        """Return the run in a record file."""
        return DumpRun(path, self.framework, load_pt)
