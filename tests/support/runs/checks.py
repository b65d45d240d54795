"""Results of checks, made without recording anything, with names that no format may take for its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from probe_workflow.check_result import CheckResult
from probe_workflow.exit_codes import OUTCOME_CODES, CheckCode
from probe_workflow.recording import RecordedScript, RecordingEnd

from probe_core.model.answers import Answer, Coverage, Finding, Outcome
from probe_core.model.rows import Reason

COMPLETE = RecordedScript(RecordingEnd.COMPLETE, 0)


def cause(
    op: str = "Functional.linear.0.forward", where: str = "File /repo/train.py, line 7, in f, y = f(x)", **more: Any
) -> Finding:
    """A cause of a call."""
    return Finding(op, f"{op}.output.0", Reason("introduced", "returns values that differ"), where=where, **more)


def checked(outcome: Outcome = Outcome.DIVERGED, *causes: Finding, text: str = "a call differs") -> CheckResult:
    """The result of a check whose runs were compared."""
    answer = Answer(outcome, text, causes, Coverage(10, 8), ("2 values were not recorded",), ("Compare again.",))
    return CheckResult(Path("golden"), OUTCOME_CODES[outcome], COMPLETE, answer)


def failed(end: RecordingEnd = RecordingEnd.SCRIPT_FAILED, code: CheckCode = CheckCode.UNDECIDED) -> CheckResult:
    """The result of a check whose script failed."""
    return CheckResult(Path("golden"), code, RecordedScript(end, 1, "ValueError"))
