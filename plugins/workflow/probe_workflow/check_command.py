"""``probe check``: record a script and compare it with a golden recording."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from probe_core.cli import console
from probe_core.cli.options import Location
from probe_core.cli.spelling import option
from probe_core.files.atomic import create_private_directory
from probe_core.plugins.manager import Manager
from probe_workflow.bisect_command import BisectCommand, translate_exit_code
from probe_workflow.check_result import END_CODES, CheckResult
from probe_workflow.comparison import compare_runs
from probe_workflow.exit_codes import CheckCode
from probe_workflow.golden import GoldenRun, read_golden
from probe_workflow.recording import RecordingEnd, record_script
from probe_workflow.sentences import describe_failure


@click.command(cls=BisectCommand)
@click.argument("golden", type=Location())
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@option("-o", "--output", type=click.Path(path_type=Path),
    help="Directory that keeps the recording and the result files.  [default: none are kept]")  # fmt: skip
@click.pass_context
def check(ctx: click.Context, /, golden: Path, command: tuple[str, ...], output: Path | None) -> int:
    """Record a script with the settings of GOLDEN, compare it with GOLDEN, and print the verdict.

    COMMAND is the script as you would run it, after --. Exits with 0 if the runs agree, 1 if they
    diverged, 125 if that cannot be told or the script failed, and 128 or more for a mistake.

    \b
    probe check golden -- python train.py --epochs 1
    git bisect run probe check golden -- python train.py
    """
    manager = ctx.find_object(Manager) or Manager()
    golden_run = read_golden(golden, manager)
    temporary = create_private_directory()
    try:
        result = _check(golden_run, command, output, temporary, manager)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    if result.script.end in (RecordingEnd.SCRIPT_FAILED, RecordingEnd.INCOMPLETE):
        console.error(*describe_failure(result))
    return result.code


def _check(
    golden: GoldenRun, command: tuple[str, ...], output: Path | None, temporary: Path, manager: Manager
) -> CheckResult:
    """Record the command, and compare the recording with the golden."""
    recording = (output or temporary) / "recording"
    script = record_script(command, golden, recording, temporary / "status")
    if script.end is not RecordingEnd.COMPLETE:
        return CheckResult(golden.path, END_CODES[script.end], script)
    code, kept = compare_runs(recording, golden.path, output or temporary / "output", (), manager)
    return CheckResult(
        golden.path, CheckCode(translate_exit_code(code)), script, kept.answer if kept is not None else None
    )
