"""Sentences on the result of a check."""

from __future__ import annotations

from probe_core.errors import format_list
from probe_core.model.answers import Finding
from probe_workflow.check_result import CheckResult
from probe_workflow.recording import RecordingEnd

_REMEDIES = {
    RecordingEnd.SCRIPT_FAILED: "Its own message is above. git bisect run skips this commit.",
    RecordingEnd.INCOMPLETE: "The message above names what was lost, and why.",
    RecordingEnd.REFUSED: "Correct what the message above names.",
    RecordingEnd.DEFECT: "Please report it with the lines above.",
    RecordingEnd.INTERRUPTED: "",
}


def describe_failure(result: CheckResult) -> tuple[str, str]:
    """Return a sentence on why there is no verdict, and one on what to do."""
    script = result.script
    if result.lacks_steps:
        steps = f"{'step' if len(script.missing_steps) == 1 else 'steps'} {format_list(script.missing_steps)}"
        return f"The script did not record {steps} of the golden; what it recorded agrees.", (
            "Let the script train as many steps as for the golden, or record the golden again."
        )
    cause = f" with {script.exception}" if script.exception and script.exception != "SystemExit" else ""
    code = f"signal {-script.exit_code}" if script.exit_code < 0 else f"exit code {script.exit_code}"
    sentences = {
        RecordingEnd.SCRIPT_FAILED: f"The script failed{cause} ({code}), so it was not compared with the golden.",
        RecordingEnd.INCOMPLETE: "The script succeeded, but its recording is incomplete, so it was not compared.",
        RecordingEnd.REFUSED: f"The script could not be recorded ({code}).",
        RecordingEnd.DEFECT: "probe failed while it recorded the script.",
        RecordingEnd.INTERRUPTED: "The script was interrupted.",
    }
    return sentences[script.end], _REMEDIES[script.end]


def summarize(result: CheckResult) -> str:
    """Return the result in one sentence: the verdict, or why there is none."""
    if result.answer is None or result.lacks_steps:
        return describe_failure(result)[0]
    return result.answer.sentence


def describe_cause(cause: Finding, *, names_call: bool = True) -> str:
    """Return the statement on a cause, whose subject is the call."""
    call = f"{cause.op} " if names_call else ""
    return f"{call}{cause.reason.detail}"


def list_details(result: CheckResult) -> list[str]:
    """Return the lines of a report that follow the verdict."""
    answer = result.answer
    if answer is None:
        return [describe_failure(result)[1]]
    coverage = answer.coverage
    lines = [line for cause in answer.causes for line in (describe_cause(cause), cause.where) if line]
    compared = f"compared: {coverage.compared:,} of {coverage.recorded:,} recorded values"
    return [*lines, compared, *(f"not compared: {sentence}" for sentence in answer.missing), *answer.next]
