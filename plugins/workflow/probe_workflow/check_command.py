"""``probe check``: record a script and compare it with a golden recording."""

from __future__ import annotations

import shutil
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click

from probe_core import console
from probe_core.errors import UserError
from probe_core.files.atomic import create_private_directory
from probe_core.model.answers import Outcome
from probe_core.plugins.manager import Manager
from probe_core.terminal.option_types import Location
from probe_core.terminal.spelling import option
from probe_workflow.bisect_command import BisectCommand, translate_exit_code
from probe_workflow.check_result import END_CODES, CheckResult
from probe_workflow.comparison import compare_runs
from probe_workflow.exit_codes import CheckCode
from probe_workflow.golden import GoldenRun, read_golden
from probe_workflow.recording import RecordingEnd, record_script
from probe_workflow.reports.ci_systems import CiSystem, detect_ci_system, neutralize_commands
from probe_workflow.reports.writing import ReportOptions, write_reports
from probe_workflow.sentences import describe_failure

DETECTED = "auto"
FILE_TYPE = click.Path(dir_okay=False, path_type=Path)


@click.command(cls=BisectCommand)
@click.argument("golden", type=Location())
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Keep the recording and the result files in this directory; an earlier recording there is "
    "replaced.  [default: nothing is kept]")  # fmt: skip
@option("--assert-differs", type=Location(), metavar="BAD",
    help="Refuse to check unless BAD, a recording of the commit known to be bad, diverges from GOLDEN.")  # fmt: skip
@option("--summary", type=FILE_TYPE, metavar="FILE", help="Write the verdict in Markdown.")
@option("--junit", type=FILE_TYPE, metavar="FILE", help="Write the verdict as a JUnit XML file.")
@option("--code-quality", type=FILE_TYPE, metavar="FILE",
    help="Write the causes as a code quality report of GitLab.")  # fmt: skip
@option("--annotations", type=click.Choice([DETECTED, *(system.value for system in CiSystem)]), default=DETECTED,
    help="Print the causes as annotations for this CI system.  [default: the system that runs the command]"
    )  # fmt: skip
@option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def check(
    ctx: click.Context,
    /,
    golden: Path,
    command: tuple[str, ...],
    output: Path | None,
    assert_differs: Path | None,
    annotations: str,
    as_json: bool,
    **files: Path | None,
) -> int:
    """Record a script with the settings of GOLDEN, compare it with GOLDEN, and print the verdict.

    COMMAND is the script as you would run it, after --. Exits with 0 if the runs agree, 1 if they
    diverged, 125 if that cannot be told or the script failed, and 128 or more for a mistake.

    \b
    probe check golden -- python train.py --epochs 1
    git bisect run probe check golden -- python train.py
    """
    system = detect_ci_system() if annotations == DETECTED else CiSystem(annotations)
    manager = ctx.find_object(Manager) or Manager()
    temporary = create_private_directory()
    try:
        with redirect_stdout(sys.stderr) if as_json else neutralize_commands(system):
            check = _Check(read_golden(golden, manager), output, temporary, manager)
            if assert_differs is not None:
                check.assert_diverged(assert_differs)
            result = check.run(command)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if result.script.end in (RecordingEnd.SCRIPT_FAILED, RecordingEnd.INCOMPLETE) or result.lacks_steps:
        console.error(*describe_failure(result))
    write_reports(result, ReportOptions(system, as_json, **files))
    return result.code


@dataclass(frozen=True, slots=True)
class _Check:
    """A check against a golden recording.

    Attributes:
        golden: The golden.
        output: The directory that keeps the recording and the result files; None to keep nothing.
        temporary: A directory for everything that is not kept.
        manager: The plugins.
    """

    golden: GoldenRun
    output: Path | None
    temporary: Path
    manager: Manager

    def run(self, command: tuple[str, ...]) -> CheckResult:
        """Record the command, and compare the recording with the golden."""
        recording = (self.output or self.temporary) / "recording"
        script = record_script(command, self.golden, recording, self.temporary / "status")
        if script.end is not RecordingEnd.COMPLETE:
            return CheckResult(self.golden.path, END_CODES[script.end], script)
        output = self.output, self.temporary / "output"
        compare_code, answer = compare_runs(recording, self.golden.path, *output, self.manager)
        code = CheckCode(translate_exit_code(compare_code))
        if code is CheckCode.AGREE and script.missing_steps:
            code = CheckCode.UNDECIDED
        return CheckResult(self.golden.path, code, script, answer)

    def assert_diverged(self, bad: Path) -> None:
        """Check that a recording diverges from the golden.

        Raises:
            UserError: It does not, so that a bisection cannot find a commit.
        """
        with redirect_stdout(sys.stderr):
            _, answer = compare_runs(bad, self.golden.path, None, self.temporary / "differs", self.manager)
        if answer is None or answer.outcome is not Outcome.DIVERGED:
            verdict = "there is no verdict" if answer is None else answer.outcome.value
            raise UserError(
                f"{bad} does not diverge from {self.golden.path} ({verdict}), so no commit between them can be blamed.",
                "Record both again, with more steps or with task tensor, and compare them before you bisect.",
            )
