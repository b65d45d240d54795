"""``probe compare``: parse, plan, run, sum up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from probe_core.cli import console
from probe_core.cli.extending import asked, given
from probe_core.cli.main import FINISHED
from probe_core.cli.options import CompareFile, Location, Numbers, read_compare_file
from probe_core.cli.running import run_plan
from probe_core.errors import UserError
from probe_core.model import Level
from probe_core.model.plan import DEFAULT_FORMATS, Plan, StackMode
from probe_core.plugins.manager import Manager
from probe_core.ranks.executors import tune_process

DEFAULT_OUTPUT = "./output"
BARE = Path()
FILE = click.Path(path_type=Path)
MAPPING: dict[str, Any] = {"is_flag": False, "flag_value": "", "type": FILE}
"""An option that may stand without a value."""
FAIL_ON = (Level.WARNING.value, Level.ERROR.value)


def both(name: str) -> tuple[str, str]:
    """An option's two spellings: ``--input_path`` and ``--input-path``."""
    return f"--{name}", f"--{name.replace('_', '-')}"


@click.command()
@click.argument("target", required=False, type=Location())
@click.argument("golden", required=False, type=Location())
@click.option("-i", *both("input_path"), type=FILE,
    help="Compare file: JSON with npu_path and bench_path, instead of TARGET and GOLDEN.")  # fmt: skip
@click.option("-o", *both("output_path"), "output", is_flag=False, flag_value=DEFAULT_OUTPUT,
    default=DEFAULT_OUTPUT, type=FILE,
    help="Directory of the result files; created when absent.  [default: ./output]")  # fmt: skip
@click.option("--framework", help="Framework of the runs; found out when left out.")
@click.option("-s", *both("stack_mode"), is_flag=True,
    help="Show call stacks; decides only where the compare file has stack_path.")  # fmt: skip
@click.option("-c", *both("compare_only"), is_flag=True, help="Write no advisor file.")
@click.option("-f", *both("fuzzy_match"), is_flag=True,
    help="Pair calls whose names differ in the call count.")  # fmt: skip
@click.option("--match", "--matcher", "matcher", metavar="NAME",
    help="Pair with this matcher: exact, fuzzy, align, …")  # fmt: skip
@click.option("-hl", "--highlight", is_flag=True, help="Mark suspicious rows red and yellow.")
@click.option("-dm", *both("data_mapping"), type=FILE,
    help="Yaml file that pairs row names: 'target name: golden name'.")  # fmt: skip
@click.option("-am", *both("api_mapping"), **MAPPING,
    help="Pair the APIs of two frameworks, with a yaml file in another way than probe knows.")  # fmt: skip
@click.option("-cm", *both("cell_mapping"), **MAPPING,
    help="Pair the modules of two frameworks; the yaml file pairs names: 'fc.Dense: head.Linear'.",
)  # fmt: skip
@click.option("-lm", *both("layer_mapping"), type=FILE,
    help="Yaml file that pairs the children of each class of modules.")  # fmt: skip
@click.option("--metric", "metrics", multiple=True, metavar="NAME[:PARAMETER=VALUE]",
    help="Show this metric as well, with its parameters: ulp:limit=4; may be given several times.",
)  # fmt: skip
@click.option("--policy", "policies", metavar="NAME[,NAME…]",
    help="Judge by these policies: the first gives the verdict, each further one a column.")  # fmt: skip
@click.option("--format", "formats", metavar="NAME[,NAME…]", help="Formats of the result.  [default: xlsx]")
@click.option("--step", "steps", type=Numbers(), default=(), help="Compare these steps only: 0,2-4.")
@click.option("--rank", "ranks", type=Numbers(), default=(), help="Compare these ranks only: 0-3,8.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Processors to use.  [default: all]")
@click.option("--executor", metavar="NAME", help="Where comparisons run: threads, processes, …")
@click.option("--scheduler", metavar="ADDRESS", help="Scheduler of a cluster, such as tcp://host:8786.")
@click.option("--resume", is_flag=True, help="Take up an interrupted comparison; finished ranks stay.")
@click.option("--fail-on", type=click.Choice(FAIL_ON),
    help="Exit with 1 when a row is this grave, or graver.")  # fmt: skip
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
    api_mapping: Path | None,
    cell_mapping: Path | None,
    layer_mapping: Path | None,
    metrics: tuple[str, ...],
    policies: str | None,
    formats: str | None,
    steps: tuple[int, ...],
    ranks: tuple[int, ...],
    jobs: int | None,
    executor: str | None,
    scheduler: str | None,
    resume: bool,
    fail_on: str | None,
    print_plan: bool,
) -> int:
    """Compare two recorded runs and say where they part.

    TARGET is the run under test, GOLDEN the reference: a dump.json, a rank directory, a step
    directory, or a dump directory; a path, or a URL such as s3://bucket/dump. Steps and ranks that
    both have are compared with each other.

    \b
    probe compare target_dump golden_dump -o out
    probe compare target_dump golden_dump -o out --step 0 --rank 0-3 --jobs 4
    probe compare -i compare.json -o out -hl
    probe compare target_dump/step0 golden_dump/step0 -o out -da
    """
    manager = ctx.find_object(Manager) or Manager()
    runs = _runs(target, golden, input_path)
    if fuzzy_match and matcher:
        raise UserError(
            "-f (--fuzzy_match) and --match (--matcher) exclude each other.", "Leave one of them out."
        )
    plan = Plan(
        target=runs.target,
        golden=runs.golden,
        output=output,
        time_stamp=time_stamp(),
        framework=framework or ctx.meta.get("probe.framework"),
        matcher=matcher or matcher_name(fuzzy_match),
        mapping=data_mapping,
        across=BARE in (api_mapping, cell_mapping),
        api_mapping=api_mapping if api_mapping != BARE else None,
        cell_mapping=cell_mapping if cell_mapping != BARE else None,
        layer_mapping=layer_mapping,
        metrics=metrics,
        policies=names_in(policies, "--policy", "--policy accuracy"),
        formats=chosen_formats(formats),
        stack=stack_choice(runs.stack, stack_mode),
        stack_path=runs.stack,
        highlight=highlight,
        advise=not compare_only,
        steps=steps,
        ranks=ranks,
        jobs=jobs or 0,
        executor=executor or (manager.scheduled() if scheduler else None),
        scheduler=scheduler,
        resume=resume,
    )
    for option, values in given(ctx, manager):
        plan = option(plan, values, asked(ctx))
    if print_plan:
        console.show_json(plan.describe())
        return FINISHED
    tune_process()
    return run_plan(plan, manager, Level(fail_on) if fail_on else None, brief=not runs.print_log)


def _runs(target: Path | None, golden: Path | None, input_path: Path | None) -> CompareFile:
    if input_path is not None:
        if target is not None:
            raise UserError(
                "-i (--input_path) and TARGET exclude each other.", "Give a compare file, or two paths."
            )
        return read_compare_file(input_path)
    if target is None or golden is None:
        raise UserError(
            "Two runs are needed.",
            "Give them as TARGET GOLDEN, or a compare file with -i. See 'probe compare --help'.",
        )
    return CompareFile(target, golden, None, True)


def chosen_formats(text: str | None) -> tuple[str, ...]:
    """The formats in ``text``; without one a workbook."""
    return names_in(text, "--format", "--format xlsx,csv") or DEFAULT_FORMATS


def names_in(text: str | None, option: str, example: str) -> tuple[str, ...]:
    """The names in ``text``, divided by commas, each once; none without a text.

    Raises:
        UserError: The text holds no name.
    """
    if text is None:
        return ()
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserError(f"{option} names no {option.removeprefix('--')}.", f"For example {example}.")
    return names


def matcher_name(fuzzy: bool) -> str | None:
    """The matcher that the seed's options ask for; None for the one that fits."""
    return "fuzzy" if fuzzy else None


def stack_choice(path: Path | None, asked: bool) -> StackMode:
    """With a stack file, ``-s`` decides; without, whether there is a stack.json beside the target."""
    if path is None:
        return StackMode.AUTO
    return StackMode.SHOW if asked else StackMode.HIDE


def time_stamp() -> str:
    """Now, as the names of the result files have it."""
    return time.strftime("%Y%m%d%H%M%S")
