"""Recording of a script in a fresh process, and how that ended."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text
from probe_core.terminal.exit_codes import EXIT_DEFECT
from probe_workflow.golden import GoldenRun
from probe_workflow.user_command import insert_recorder

PROGRAM = Path(__file__).parent / "launch" / "record.py"
"""The program that stands in for the user's script and records it."""

STANDARD_ERROR = 2
"""The descriptor of the standard error stream."""

INTERRUPT_SECONDS = 60.0
"""Longest time that an interrupted recording may take to write its files."""


class RecordingEnd(str, Enum):
    """Ways in which the recording of a script can end."""

    COMPLETE = "complete"
    SCRIPT_FAILED = "script failed"
    INCOMPLETE = "incomplete"
    REFUSED = "refused"
    DEFECT = "defect"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class RecordedScript:
    """A script that was recorded.

    Attributes:
        end: How the recording ended.
        exit_code: The exit code of the process; negative for the number of a signal.
        exception: The name of the exception that ended the script; empty for none.
        missing_steps: The steps of the golden that were not recorded.
    """

    end: RecordingEnd
    exit_code: int
    exception: str = ""
    missing_steps: tuple[int, ...] = ()


def record_script(command: Sequence[str], golden: GoldenRun, output: Path, status: Path) -> RecordedScript:
    """Run a command whose script is recorded with the settings of the golden.

    What the command prints goes to the standard error stream.

    Args:
        command: The command as the user would type it.
        golden: The golden.
        output: The directory of the recording.
        status: A directory for temporary files.

    Raises:
        UserError: The command names no script, or cannot be run.
        KeyboardInterrupt: The user pressed Ctrl-C; the command has ended.
    """
    make_directory(status)
    config = status / "config.json"
    write_text(config, json.dumps(golden.settings.create_config(golden.steps)))
    recorder = [str(PROGRAM), "run", "-o", str(output), "--replace", "--config", str(config), "--status", str(status)]
    recorder += [] if golden.settings.seed is None else ["--seed", str(golden.settings.seed)]
    recorder += ["--double"] if golden.settings.double else []
    code = _run(insert_recorder(command, recorder))
    return _judge_end(code, _read_statuses(status), golden.steps)


def _run(command: Sequence[str]) -> int:
    try:
        process = subprocess.Popen(command, stdout=STANDARD_ERROR)
    except OSError as error:
        raise UserError(
            f'"{command[0]}" cannot be run: {error.strerror or error}.', "Give a command that can be run here."
        ) from None
    with process:
        try:
            return process.wait()
        except KeyboardInterrupt:  # which the terminal sends to the process as well
            try:
                process.wait(INTERRUPT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise


def _read_statuses(directory: Path) -> list[dict[str, Any]]:
    """Return how each process ended, by its own file (docs/recording.md#status)."""
    return [json.loads(file.read_text("utf-8")) for file in sorted(directory.glob("status-*.json"))]


def _judge_end(code: int, statuses: Sequence[dict[str, Any]], steps: Sequence[int]) -> RecordedScript:
    """Return how a recording ended, by the exit code of the command and the statuses of its processes."""
    exception = next((str(status["exception"]) for status in statuses if status["exception"]), "")
    recorded_steps = {step for status in statuses for step in status["steps"]}
    is_cut_off = any(not status["ended"] for status in statuses)
    if code == EXIT_DEFECT and (is_cut_off or not statuses):
        end = RecordingEnd.DEFECT
    elif not statuses:
        end = RecordingEnd.REFUSED
    elif exception == KeyboardInterrupt.__name__:
        end = RecordingEnd.INTERRUPTED
    elif any(status["exit_code"] for status in statuses) or (is_cut_off and code):
        end = RecordingEnd.SCRIPT_FAILED
    elif is_cut_off or not recorded_steps or not all(status["complete"] for status in statuses):
        end = RecordingEnd.INCOMPLETE
    else:
        end = RecordingEnd.SCRIPT_FAILED if code else RecordingEnd.COMPLETE
    return RecordedScript(end, code, exception, tuple(step for step in steps if step not in recorded_steps))
