"""The claim of a process that writes its last steps at an event."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from probe_recording.api import Config, Process
from probe_recording.keeping.event_claim import EventClaim
from probe_recording.messages import Notices
from probe_recording.run_directory.run_claim import RunClaim


def test_open_event_step_avoids_a_directory_that_another_process_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(dump_path=tmp_path / "run", shown_path="run")
    other = RunClaim(Process())
    other.open_step(config, 0)
    claim = EventClaim(Process(), Notices(), replaces=False)
    changed, directory = claim.open_event_step(config, 4, "rank")
    assert changed.shown_path == f"run-{os.getpid()}"
    assert directory.path == tmp_path / f"run-{os.getpid()}" / "step4" / "rank"
    again, _ = claim.open_event_step(changed, 5, "rank")
    assert again == changed
    assert capsys.readouterr().err.count("is in use or cannot be written") == 1
    claim.release()
    other.release()
