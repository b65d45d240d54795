"""The claim of a process on its part of a run directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from probe_recording.api import Config, Process
from probe_recording.run_directory.run_claim import RunClaim, list_complete_steps

from probe_core.errors import UserError


def make_config(path: Path) -> Config:
    return Config(dump_path=path, shown_path=str(path))


def test_open_step_locks_the_directory(tmp_path: Path) -> None:
    claim, other = RunClaim(Process()), RunClaim(Process())
    assert not claim.is_made
    assert claim.open_step(make_config(tmp_path), 3).path == tmp_path / "step3" / "rank"
    assert claim.is_made
    with pytest.raises(UserError, match="is being written by process"):
        other.open_step(make_config(tmp_path), 3)
    claim.release()
    other.open_step(make_config(tmp_path), 3)
    other.release()


def test_list_complete_steps_leaves_out_empty_and_removed_steps(tmp_path: Path) -> None:
    for step in (0, 1):
        (tmp_path / f"step{step}" / "rank").mkdir(parents=True)
        (tmp_path / f"step{step}" / "rank" / "dump.json").touch()
    assert list_complete_steps(make_config(tmp_path), {0: 5, 1: 0, 2: 7}) == [0]
