"""Recorders of plugins with the interface before captures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Config, Recorder
from probe_recording.run_directory.directory import StepDirectory
from support.runs.empty_session import EmptySession


class FormerRecorder(Recorder[EmptySession]):
    """A recorder that overrides ``_see`` and ``_blind``."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.log: list[str] = []

    def new_session(self, directory: StepDirectory, shown: str) -> EmptySession:
        return EmptySession(self.config, directory, shown)

    def _see(self, session: EmptySession, model: Any) -> None:
        self.log.append("see")

    def _blind(self) -> None:
        super()._blind()
        self.log.append("blind")

    def register(self, holder: Any, attribute: str, name: str) -> None:
        raise NotImplementedError

    def restore(self, holder: Any, attribute: str) -> bool:
        return False


def test_former_methods_are_called_with_a_warning(tmp_path: Path) -> None:
    config = Config(dump_path=tmp_path / "run", shown_path="run", level="L1", conditions=False)
    with pytest.warns(DeprecationWarning, match="FormerRecorder overrides _see and _blind"):
        recorder = FormerRecorder(config)
    recorder.reports_missing = False
    recorder.start(None, None)
    assert recorder.log == ["see"]
    recorder.step()
    assert recorder.log == ["see", "blind"]
    recorder.finish()
    assert (tmp_path / "run" / "step0" / "rank" / "dump.json").is_file()
