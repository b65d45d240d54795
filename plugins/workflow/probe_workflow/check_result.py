"""The result of a check: the recorded script, the verdict, and the exit code that follows from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from probe_core.model.answers import Answer, Outcome
from probe_workflow.exit_codes import CheckCode
from probe_workflow.recording import RecordedScript, RecordingEnd

END_CODES = {
    RecordingEnd.SCRIPT_FAILED: CheckCode.UNDECIDED,
    RecordingEnd.INCOMPLETE: CheckCode.INCOMPLETE,
    RecordingEnd.REFUSED: CheckCode.USER_ERROR,
    RecordingEnd.DEFECT: CheckCode.DEFECT,
    RecordingEnd.INTERRUPTED: CheckCode.INTERRUPTED,
}
"""The exit code of each way in which a recording can end, other than completely."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check.

    Attributes:
        golden: The golden as the user named it.
        code: The exit code.
        script: The script that was recorded.
        answer: The verdict; None if the runs were not compared.
    """

    golden: Path
    code: CheckCode
    script: RecordedScript
    answer: Answer | None = None

    @property
    def lacks_steps(self) -> bool:
        """True if the runs agree, but for steps of the golden that the script did not record."""
        is_agreement = self.answer is not None and self.answer.outcome is Outcome.AGREE
        return is_agreement and bool(self.script.missing_steps)
