"""Readers of the older tools' files."""

from __future__ import annotations

from pathlib import Path

from probe_legacy.reading.hooks import HooksRun
from probe_legacy.reading.lines import HOOKS, PICKLE, PTDBG, detect_format, refuse_pickle
from probe_legacy.reading.ptdbg import PtdbgRun

FORMAT_CONFIDENCE = 90


class PtdbgReader:
    """A reader of the files of ptdbg_ascend 1.0 to 6.0."""

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that a file was written by ptdbg_ascend."""
        return FORMAT_CONFIDENCE if detect_format(path) == PTDBG else 0

    def open(self, path: Path) -> PtdbgRun:
        """Return the run in a file."""
        return PtdbgRun(path)


class HooksReader:
    """A reader of the files of torch_npu.hooks 3.0.rc3 to 5.0, which also refuses real pickles."""

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that a file was written by torch_npu.hooks."""
        return FORMAT_CONFIDENCE if detect_format(path) in (HOOKS, PICKLE) else 0

    def open(self, path: Path) -> HooksRun:
        """Return the run in a file."""
        if detect_format(path) == PICKLE:
            raise refuse_pickle(path)
        return HooksRun(path)
