"""The reader of runs recorded from PyTorch."""

from __future__ import annotations

from pathlib import Path

from probe_recording.api import DumpRun, confidence

from probe_pytorch.ptfile import load_pt
from probe_pytorch.signatures import find_argument_name


class PyTorchRun(DumpRun):
    """A run recorded from PyTorch, which knows the signatures of its calls."""

    def argument_name(self, op: str, argument: str) -> str:
        """Return the name of the argument at a place such as ``input.7``; empty if it is not known."""
        return find_argument_name(op, argument)


class PyTorchReader:
    """A reader of runs whose header names pytorch, or no framework as in runs of msprobe 1.0."""

    framework = "pytorch"

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that a record file was recorded from PyTorch."""
        return confidence(path, self.framework, without_name=80)

    def open(self, path: Path) -> PyTorchRun:
        """Return the run in a record file."""
        return PyTorchRun(path, self.framework, load_pt)
