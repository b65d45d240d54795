"""The lines of code of calls, from the stacks of both runs."""

from __future__ import annotations

from pathlib import Path

import torch
from support.probe import Probe
from support.runs.recording import recording


def scale(values: torch.Tensor, factor: float) -> torch.Tensor:
    return values * factor


def record_scales(path: Path, factor: float, *, is_called_twice: bool) -> Path:
    with recording(path, level="L1") as recorder:
        recorder.start()
        values = torch.ones(3).exp()
        if is_called_twice:
            scale(values, 2.0)
        scale(values, factor)
        recorder.stop()
    return path


def test_the_caller_of_a_line_that_several_lines_reach(tmp_path: Path, probe: Probe) -> None:
    for is_called_twice in (True, False):
        paths = [
            record_scales(tmp_path / f"{name}{is_called_twice}", factor, is_called_twice=is_called_twice)
            for name, factor in (("target", 3.0), ("golden", 4.0))
        ]
        assert probe("compare", *paths, "-o", tmp_path / f"out{is_called_twice}") == 0
        assert "in scale, return values * factor" in probe.out
        assert ("called by" in probe.out) is is_called_twice
        assert ("in record_scales, scale(values, factor)" in probe.out) is is_called_twice
