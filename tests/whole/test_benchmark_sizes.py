"""Benchmarks that measure files: which files they use, and what they print if nothing is on disk."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def test_a_run_without_tensors_is_reported_by_the_benchmark_of_recording_against_a_golden(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import against

    def record(part: str, place: Path, *_: object) -> str:
        tensors = place / "full" / "step0" / "rank" / "tensors.safetensors"
        tensors.parent.mkdir(parents=True)
        tensors.write_bytes(bytes(1000))
        return part

    monkeypatch.setattr(against, "run_stepper", record)
    against.measure_size()
    assert capsys.readouterr().out.splitlines() == [
        f"{summary:10} 0 of 1,000 bytes: []" for summary in against.SUMMARIES
    ]


def test_checkpoints_of_another_size_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import checkpoints

    made: list[int] = []

    def make(command: list[str], **_: object) -> None:
        Path(command[3]).mkdir()
        made.append(int(command[4]))

    def measure(_: Path, programs: dict[str, Any]) -> dict[str, tuple[float, ...]]:
        return dict.fromkeys(programs, (1.0, 1.0, 1.0))

    monkeypatch.setattr(subprocess, "run", make)
    monkeypatch.setattr(checkpoints, "run_all", measure)
    for size in ("1", "4", "1"):
        monkeypatch.setattr(sys, "argv", ["checkpoints.py", size, str(tmp_path)])
        checkpoints.main()
    assert made == [1 << 30, 1 << 30, 4 << 30, 4 << 30]
