"""The captures of a recorder, and a module that is recorded alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Capture, Config
from probe_recording.capture.capture_control import CaptureControl
from probe_recording.run_directory.directory import StepDirectory
from support.runs.empty_session import EmptySession


class LoggingCapture(Capture[EmptySession]):
    """A capture that logs what is called."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def install(self, session: EmptySession, model: Any) -> None:
        self._log.append(f"install {self._name}")

    def remove(self) -> None:
        self._log.append(f"remove {self._name}")

    def pause(self) -> None:
        self._log.append(f"pause {self._name}")

    def resume(self) -> None:
        self._log.append(f"resume {self._name}")


class LoggingHooks:
    """Hooks of modules that log what is called."""

    paused = False

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def begin_step(self, session: EmptySession) -> None:
        self._log.append("begin step")

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        self._log.append(f"hook {[name for name, _ in named]} {gradients}")

    def remove(self) -> None:
        self._log.append("unhook")


class Tap:
    """A module."""


@pytest.fixture
def session(tmp_path: Path) -> EmptySession:
    return EmptySession(Config(dump_path=tmp_path, shown_path=""), StepDirectory(tmp_path, 0, "rank"), "")


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def control(log: list[str]) -> CaptureControl[EmptySession]:
    control: CaptureControl[EmptySession] = CaptureControl(lambda model, before: None)
    control.captures += [LoggingCapture("a", log), LoggingCapture("b", log)]
    return control


def test_captures_are_removed_in_reverse_order(
    control: CaptureControl[EmptySession], session: EmptySession, log: list[str]
) -> None:
    control.install(session, None)
    control.remove()
    assert log == ["install a", "install b", "remove b", "remove a"]


def test_a_single_module_is_recorded_while_the_captures_are_paused(
    control: CaptureControl[EmptySession], session: EmptySession, log: list[str]
) -> None:
    control.record_single(session, LoggingHooks(log), "mine", Tap())
    assert control.end_single() and not control.end_single()
    assert log == ["pause a", "pause b", "begin step", "hook ['mine.Tap'] False", "unhook", "resume a", "resume b"]


def test_remove_ends_the_recording_of_a_single_module(
    control: CaptureControl[EmptySession], session: EmptySession, log: list[str]
) -> None:
    control.record_single(session, LoggingHooks(log), "mine", Tap())
    control.remove()
    assert log[4:] == ["unhook", "resume a", "resume b", "remove b", "remove a"] and not control.end_single()
