from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from probe_recording.settings.recorded_settings import RecordedSettings
from probe_workflow.golden import GoldenRun
from probe_workflow.recording import RecordingEnd, record_script

from probe_core.errors import UserError

ENDED = {"ended": True, "exit_code": 0, "exception": "", "complete": True, "steps": [0, 1]}
BEGUN = {**ENDED, "ended": False, "complete": False, "steps": []}
PROGRAM = """
import json, pathlib, sys
place = pathlib.Path(sys.argv[sys.argv.index("--status") + 1])
for number, status in enumerate({statuses}):
    (place / f"status-{{number}}.json").write_text(json.dumps(status))
(place.parent / "arguments.json").write_text(json.dumps(sys.argv[1:]))
sys.exit({code})
"""


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Record by a program that writes these statuses and exits with a code."""

    def run(code: int, *statuses: dict[str, Any], settings: RecordedSettings | None = None) -> Any:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(statuses=list(statuses), code=code))
        monkeypatch.setattr("probe_workflow.recording.PROGRAM", program)
        golden = GoldenRun(tmp_path, settings or RecordedSettings("statistics", "mix"), (0, 1))
        return record_script([sys.executable, "train.py"], golden, tmp_path / "out", tmp_path / "status")

    return run


@pytest.mark.parametrize("end, code, statuses", [
    (RecordingEnd.COMPLETE, 0, [ENDED]),
    (RecordingEnd.COMPLETE, 0, [ENDED, {**ENDED, "steps": []}]),  # a rank that the settings leave out
    (RecordingEnd.SCRIPT_FAILED, 1, [{**ENDED, "exit_code": 1}]),
    (RecordingEnd.SCRIPT_FAILED, 2, [{**ENDED, "exit_code": 2}]),
    (RecordingEnd.SCRIPT_FAILED, 5, [BEGUN]),  # os._exit, a signal
    (RecordingEnd.SCRIPT_FAILED, 1, [ENDED]),  # at the end of the interpreter
    (RecordingEnd.SCRIPT_FAILED, 1, [ENDED, BEGUN]),
    (RecordingEnd.INCOMPLETE, 3, [{**ENDED, "complete": False}]),
    (RecordingEnd.INCOMPLETE, 1, [ENDED, {**ENDED, "complete": False}]),  # as torchrun reports it
    (RecordingEnd.INCOMPLETE, 0, [{**ENDED, "steps": []}]),
    (RecordingEnd.INCOMPLETE, 0, [BEGUN]),
    (RecordingEnd.REFUSED, 2, []),
    (RecordingEnd.REFUSED, 1, []),
    (RecordingEnd.DEFECT, 70, []),
    (RecordingEnd.DEFECT, 70, [BEGUN]),
    (RecordingEnd.SCRIPT_FAILED, 70, [{**ENDED, "exit_code": 70}]),
    (RecordingEnd.INTERRUPTED, 130, [{**ENDED, "exit_code": 130, "exception": "KeyboardInterrupt"}]),
])  # fmt: skip
def test_the_end_follows_from_the_exit_code_and_the_statuses(
    end: RecordingEnd, code: int, statuses: list[dict[str, Any]], record: Any
) -> None:
    assert record(code, *statuses).end is end


def test_steps_of_the_golden_that_no_process_recorded_are_missing(record: Any) -> None:
    assert record(0, {**ENDED, "steps": [0]}).missing_steps == (1,)
    assert record(0, ENDED).missing_steps == ()


def test_the_settings_of_the_golden_are_passed_on(record: Any, tmp_path: Path) -> None:
    section = {"statistics": {"summary_mode": "md5"}}
    record(0, ENDED, settings=RecordedSettings("statistics", "L1", section, 0, double=True))
    arguments = json.loads((tmp_path / "arguments.json").read_text())
    assert arguments[arguments.index("--seed") + 1] == "0" and "--double" in arguments
    config = json.loads(Path(arguments[arguments.index("--config") + 1]).read_text())
    assert config == {"task": "statistics", "level": "L1", "step": [0, 1], **section}


def test_a_program_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    golden = GoldenRun(tmp_path, RecordedSettings("statistics", "mix"), (0,))
    with pytest.raises(UserError, match="cannot be run"):
        record_script(["./no-such-launcher", str(tmp_path / "train.py")], golden, tmp_path / "out", tmp_path / "status")
