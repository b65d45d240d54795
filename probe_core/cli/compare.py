"""``probe compare``: parse, plan, run, sum up."""

from __future__ import annotations

import gc
import json
import os
import time
from pathlib import Path

import click

from probe_core.cli import console
from probe_core.cli.main import FINISHED, FOUND, INTERRUPTED, MISTAKE
from probe_core.cli.options import CompareFile, read_compare_file
from probe_core.errors import UserError
from probe_core.manager import Manager
from probe_core.model import GRAVITY, Level
from probe_core.plan import Plan, StackMode
from probe_core.report import Report

DEFAULT_OUTPUT = "./output"
FAIL_ON = (Level.WARNING.value, Level.ERROR.value)


@click.command()
@click.argument("target", required=False, type=click.Path(path_type=Path))
@click.argument("golden", required=False, type=click.Path(path_type=Path))
@click.option(
    "-i",
    "--input_path",
    "--input-path",
    type=click.Path(path_type=Path),
    help="Compare file: JSON with npu_path and bench_path, instead of TARGET and GOLDEN.",
)
@click.option(
    "-o",
    "--output_path",
    "--output-path",
    "output",
    is_flag=False,
    flag_value=DEFAULT_OUTPUT,
    default=DEFAULT_OUTPUT,
    type=click.Path(path_type=Path),
    help="Directory of the result files; created when absent.  [default: ./output]",
)
@click.option("--framework", help="Framework of the runs; found out when left out.")
@click.option(
    "-s",
    "--stack_mode",
    "--stack-mode",
    is_flag=True,
    help="Show call stacks; decides only where the compare file has stack_path.",
)
@click.option("-c", "--compare_only", "--compare-only", is_flag=True, help="Write no advisor file.")
@click.option(
    "-f",
    "--fuzzy_match",
    "--fuzzy-match",
    is_flag=True,
    help="Pair calls whose names differ in the call count.",
)
@click.option("--matcher", metavar="NAME", help="Pair with this matcher of a plugin.")
@click.option("-hl", "--highlight", is_flag=True, help="Mark suspicious rows red and yellow.")
@click.option(
    "-dm",
    "--data_mapping",
    "--data-mapping",
    type=click.Path(path_type=Path),
    help="Yaml file that pairs row names: 'target name: golden name'.",
)
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Show this metric as well; may be given several times.",
)
@click.option(
    "--format",
    "formats",
    default="xlsx",
    show_default=True,
    metavar="NAME[,NAME…]",
    help="Formats of the result.",
)
@click.option(
    "--fail-on", type=click.Choice(FAIL_ON), help="Exit with 1 when a row is this grave, or graver."
)
@click.option("--print-plan", is_flag=True, help="Print what would be done, as JSON, and stop.")
@click.pass_context
def compare(
    ctx: click.Context,
    target: Path | None,
    golden: Path | None,
    input_path: Path | None,
    output: Path,
    framework: str | None,
    stack_mode: bool,
    compare_only: bool,
    fuzzy_match: bool,
    matcher: str | None,
    highlight: bool,
    data_mapping: Path | None,
    metrics: tuple[str, ...],
    formats: str,
    fail_on: str | None,
    print_plan: bool,
) -> int:
    """Compare two recorded runs and say where they part.

    TARGET is the run under test, GOLDEN the reference: a dump.json, a rank directory, a step
    directory, or a dump directory with one step.

    \b
    probe compare npu_dump gpu_dump -o out
    probe compare --framework pytorch -i compare.json -o out -hl
    """
    runs = _runs(target, golden, input_path)
    if fuzzy_match and matcher:
        raise UserError("-f and --matcher exclude each other.", "Leave one of them out.")
    plan = Plan(
        target=runs.target,
        golden=runs.golden,
        output=output,
        time_stamp=time_stamp(),
        framework=framework or ctx.meta.get("probe.framework"),
        matcher=matcher or matcher_name(fuzzy_match),
        mapping=data_mapping,
        metrics=metrics,
        formats=_formats(formats),
        stack=stack_choice(runs.stack, stack_mode),
        stack_path=runs.stack,
        highlight=highlight,
        advise=not compare_only,
    )
    if print_plan:
        console.show(json.dumps(plan.describe(), indent=2, ensure_ascii=False))
        return FINISHED
    _tune_process()
    manager = ctx.find_object(Manager) or Manager()
    return run_plan(plan, manager, Level(fail_on) if fail_on else None, brief=not runs.print_log)


def _tune_process() -> None:
    """Make this process, which does nothing else, quick at comparing.

    Rows make few cycles, so searching for them rarely is enough. No metric of ours multiplies matrices,
    so OpenBLAS need not start the threads that would idle in a loop from numpy's import on.
    """
    gc.set_threshold(50_000, 20, 100)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def run_plan(plan: Plan, manager: Manager, fail_on: Level | None = None, *, brief: bool = False) -> int:
    """Run a plan with progress and summary, rank by rank; the exit code.

    A rank that cannot be compared is said to, and the others are compared.
    """
    from probe_core.pipeline import compare_files
    from probe_core.store.layout import pair_ranks

    ranks = pair_ranks(plan.target, plan.golden)
    reports: list[Report] = []
    failed = False
    for label, target, golden in ranks:
        try:
            with console.progress(label):
                report = compare_files(plan, manager, label, target, golden)
        except UserError as error:
            if len(ranks) == 1:
                raise
            console.error(f"{label}: {error.what}", error.fix, error.choices)
            failed = True
            continue
        reports.append(report)
        console.summary(report, brief=brief)
        if report.interrupted:
            break
    if any(report.interrupted for report in reports):
        return INTERRUPTED
    if failed or any(report.unreadable_count for report in reports):
        return MISTAKE
    if fail_on and any(GRAVITY[report.level] >= GRAVITY[fail_on] for report in reports):
        return FOUND
    return FINISHED


def _runs(target: Path | None, golden: Path | None, input_path: Path | None) -> CompareFile:
    if input_path is not None:
        if target is not None:
            raise UserError("-i and TARGET exclude each other.", "Give a compare file, or two paths.")
        return read_compare_file(input_path)
    if target is None or golden is None:
        raise UserError(
            "Two runs are needed.",
            "Give them as TARGET GOLDEN, or a compare file with -i. See 'probe compare --help'.",
        )
    return CompareFile(target, golden, None, True)


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError("--format names no format.", "For example --format xlsx,csv.")
    return names


def matcher_name(fuzzy: bool) -> str:
    """The matcher that the seed's options ask for."""
    return "fuzzy" if fuzzy else "exact"


def stack_choice(path: Path | None, asked: bool) -> StackMode:
    """With a stack file, ``-s`` decides; without, whether there is a stack.json beside the target."""
    if path is None:
        return StackMode.AUTO
    return StackMode.SHOW if asked else StackMode.HIDE


def time_stamp() -> str:
    """Now, as the names of the result files have it."""
    return time.strftime("%Y%m%d%H%M%S")
