"""A recorder and its captures: the order of their installation, their pauses, and what a failure leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from probe_recording.api import Capture, Config, ModuleCapture
from probe_recording.api import Recorder as BaseRecorder
from probe_recording.capture.captures import CaptureControl
from probe_recording.recorder.recorder_state import RecorderState
from probe_recording.run_directory.directory import StepDirectory
from support.runs.empty_session import EmptySession

from probe_core.errors import UserError


class LoggingCapture(Capture[EmptySession]):
    """A capture that logs what a recorder calls."""

    def __init__(self, name: str, log: list[str]) -> None:
        self._name = name
        self._log = log
        self.error: BaseException | None = None

    def install(self, session: EmptySession, model: Any) -> None:
        self._log.append(f"install {self._name}")
        if self.error is not None:
            raise self.error

    def remove(self) -> None:
        self._log.append(f"remove {self._name}")

    def pause(self) -> None:
        self._log.append(f"pause {self._name}")

    def resume(self) -> None:
        self._log.append(f"resume {self._name}")

    def complete(self, session: EmptySession) -> None:
        self._log.append(f"complete {self._name}")

    def close(self) -> None:
        self._log.append(f"close {self._name}")


class Recorder(BaseRecorder[EmptySession]):
    """A recorder with two captures."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.log: list[str] = []
        self.captures += [LoggingCapture("a", self.log), LoggingCapture("b", self.log)]

    def new_session(self, directory: StepDirectory, shown: str) -> EmptySession:
        return EmptySession(self.config, directory, shown)

    def register(self, holder: Any, attribute: str, name: str) -> None:
        raise NotImplementedError

    def restore(self, holder: Any, attribute: str) -> bool:
        return False

    def take_log(self) -> list[str]:
        """Return the calls since the last ``take_log``, and forget them."""
        entries, self.log[:] = [*self.log], []
        return entries


@contextmanager
def make_recorder(path: Path, **fields: Any) -> Iterator[Recorder]:
    config = Config(dump_path=path, shown_path=str(path), level="L1", conditions=False, **fields)
    recorder = Recorder(config)
    recorder.reports_missing = False  # do not warn about a recording without records
    try:
        yield recorder
    finally:
        recorder.finish()


def test_captures_are_removed_in_reverse_order(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.start(None, None)
        assert recorder.state is RecorderState.RECORDING
        assert recorder.take_log() == ["install a", "install b"]
        recorder.stop()
        assert recorder.state is RecorderState.IDLE
        assert recorder.take_log() == ["complete a", "complete b", "remove b", "remove a"]
        recorder.stop()
        assert recorder.take_log() == []
    assert recorder.take_log() == ["close a", "close b"]
    assert recorder.state is RecorderState.FINISHED


def test_start_in_finished_state_installs_nothing(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.finish()
        recorder.take_log()
        recorder.start(None, None)
        assert recorder.take_log() == []


def test_start_that_fails_removes_all_captures(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        failing = recorder.captures[1]
        assert isinstance(failing, LoggingCapture)
        failing.error = UserError("The mode is not available.", "Choose another level.")
        with pytest.raises(UserError, match="not available"):
            recorder.start(None, None)
        assert recorder.take_log() == ["install a", "remove b", "remove a"]
        assert recorder.state is RecorderState.IDLE


def test_start_that_fails_in_a_later_step_loses_the_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.step()
        failing = recorder.captures[1]
        assert isinstance(failing, LoggingCapture)
        failing.error = OSError("no device")
        recorder.start(None, None)
        assert recorder.state is RecorderState.LOST
        assert recorder.lost is not None and recorder.lost.step == 1
        recorder.take_log()
        recorder.start(None, None)
        assert recorder.take_log() == []
    assert capsys.readouterr().err.count("Recording stopped in step 1") == 1


def test_module_dump_pauses_captures_until_its_end(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.start(None, None)
        recorder.take_log()
        recorder.module_dump(object(), "block")
        assert recorder.state is RecorderState.PAUSED
        assert recorder.take_log() == ["pause a", "pause b"]
        recorder.module_dump_end()
        assert recorder.state is RecorderState.RECORDING
        assert recorder.take_log() == ["resume a", "resume b"]


def test_start_during_module_dump_keeps_captures_paused(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.module_dump(object(), "block")
        recorder.take_log()
        recorder.start(None, None)
        assert recorder.state is RecorderState.PAUSED
        assert recorder.take_log() == ["install a", "install b", "pause a", "pause b"]


def test_abandoned_recorder_records_nothing(tmp_path: Path) -> None:
    with make_recorder(tmp_path / "run") as recorder:
        recorder.start(None, None)
        recorder.abandon()
        assert recorder.state is RecorderState.FINISHED
        recorder.start(None, None)
        recorder.stop()
    assert not list((tmp_path / "run").glob("step*"))


class Hooks:
    """Hooks of modules that log what they are asked for."""

    paused = False

    def __init__(self) -> None:
        self.log: list[Any] = []

    def begin_step(self, session: Any) -> None:
        self.log.append("begin")

    def install(self, named: Any, gradients: bool) -> None:
        self.log.append((list(named), gradients))

    def remove(self) -> None:
        self.log.append("remove")


@pytest.mark.parametrize(("level", "expected"), [("L0", ["begin", ([("x.M", 1)], True)]), ("L1", [])])
def test_module_capture_hooks_modules_at_their_levels(level: str, expected: list[Any], tmp_path: Path) -> None:
    hooks = Hooks()

    def list_modules(model: Any) -> list[tuple[str, Any]]:
        return [("x.M", model)]

    capture: ModuleCapture[EmptySession] = ModuleCapture(hooks, list_modules)
    config = Config(dump_path=tmp_path, shown_path=str(tmp_path), level=level)
    capture.install(EmptySession(config, StepDirectory(tmp_path, 0, "rank"), "run"), 1)
    assert hooks.log == expected
    capture.pause()
    assert hooks.paused
    capture.resume()
    assert not hooks.paused


class NamedCapture(Capture[EmptySession]):
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
    control.captures += [NamedCapture("a", log), NamedCapture("b", log)]
    return control


def test_control_removes_captures_in_reverse_order(
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
