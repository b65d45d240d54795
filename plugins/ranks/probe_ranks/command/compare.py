"""``probe compare``: parse the command line into a plan, and run it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from probe_core import console, engine
from probe_core.errors import UserError
from probe_core.library import DEFAULT_OUTPUT, create_plan
from probe_core.model.plan import DEFAULT_FORMATS, Plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.option_types import Location
from probe_core.terminal.plugin_options import collect_option_actions, find_set_parameters
from probe_core.terminal.spelling import Command, option
from probe_ranks.command.plan_run import FAIL_ON_INCOMPLETE, FAIL_ON_SUSPECT, run_plan
from probe_ranks.command.run_paths import DropInOptions, Spelling, add_drop_in_options, choose_runs

FILE_TYPE = click.Path(path_type=Path)


def parse_names(ctx: click.Context, option: click.Parameter, text: str | None) -> tuple[str, ...]:
    """Return the distinct names in an option's value, or raise UserError if there is none."""
    names = tuple(dict.fromkeys(name.strip() for name in (text or "").split(",") if name.strip()))
    if text is not None and not names:
        flag = option.opts[-1]
        raise UserError(f"{flag} names no {flag.lstrip('-')}.", "See 'probe plugins' for the names.")
    return names


@click.command(cls=Command)
@click.argument("target", required=False, type=Location())
@click.argument("golden", required=False, type=Location())
@add_drop_in_options
@option("-o", "--output", also=["--output_path"], is_flag=False, flag_value=DEFAULT_OUTPUT,
    default=DEFAULT_OUTPUT, type=FILE_TYPE,
    help="Directory of the result files; created if absent.  [default: ./output]")  # fmt: skip
@option("--framework", help="Framework of the runs; detected if not given.")
@option("-s", "--stack-mode", is_flag=True,
    help="Show call stacks; takes effect only if the compare file sets stack_path.")  # fmt: skip
@option("-c", "--compare-only", is_flag=True, help="Write tables only: no advisor file, no answer file.")
@option("--match", "matcher", also=["--matcher"], metavar="NAME", help="Pairing: exact, fuzzy, align, …")
@option("--metric", "metrics", multiple=True, metavar="NAME[:PARAMETER=VALUE]",
    help="Show this metric as well, with parameters if any: ulp:limit=4; may be repeated.")  # fmt: skip
@option("--policy", "policies", metavar="NAME[,NAME…]", callback=parse_names,
    help="Judge rows by these policies: the first gives the verdict, each further one a column.")  # fmt: skip
@option("--format", "formats", metavar="NAME[,NAME…]", callback=parse_names,
    help="Formats of the result: xlsx, csv, jsonl, …  [default: xlsx and a page]")  # fmt: skip
@option("--jobs", silent=["-j"], type=click.IntRange(min=1), metavar="N",
    help="Limit the number of processes.  [default: one per CPU core]")  # fmt: skip
@option("--fail-on", type=click.Choice(["warning", "error", FAIL_ON_SUSPECT, FAIL_ON_INCOMPLETE]),
    help="Exit with 1 if a row has this level or a worse one, a call is named as a cause (suspect), or "
    "values were not compared (incomplete); always on NOT COMPARABLE and CANNOT TELL.")  # fmt: skip
@option("--print-plan", is_flag=True, help="Print the plan of the comparison as JSON, and stop.")
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    target: Path | None,
    golden: Path | None,
    stack_mode: bool,
    compare_only: bool,
    fail_on: str | None,
    print_plan: bool,
    **settings: Any,
) -> int:
    """Compare two recorded runs and say where they diverge first.

    TARGET is the run under test, GOLDEN the trusted run: each is a dump.json, or the directory of a
    rank, a step or a whole dump, given as a path or as a URL such as s3://bucket/dump. The steps and
    ranks that both runs have are compared with each other.

    \b
    probe compare target_dump golden_dump -o out
    probe compare target_dump golden_dump -o out --step 0 --rank 0-3 --jobs 4
    probe compare -i compare.json -o out -hl
    probe compare target_dump/step0 golden_dump/step0 -o out -da
    """
    manager = ctx.find_object(Manager) or Manager()
    drop_in = DropInOptions(**{name: settings.pop(name) for name in DropInOptions._fields})
    runs = choose_runs(target, golden, drop_in)
    if drop_in.is_xlsx and settings["formats"]:
        raise UserError("--xlsx and --format exclude each other.", "Leave --xlsx out: --format xlsx,csv")
    settings["framework"] = settings["framework"] or ctx.meta.get("probe.framework")
    settings["formats"] = settings["formats"] or _choose_formats(
        manager, runs.spelling, is_xlsx=drop_in.is_xlsx, compare_only=compare_only
    )
    settings["answer"] = not compare_only
    settings["advise"] = not compare_only and runs.spelling is not Spelling.PATH_OPTIONS
    settings["stack"], settings["stack_path"] = runs.stack and stack_mode, runs.stack
    plan = _apply_plugin_options(ctx, manager, create_plan(manager, runs.target, runs.golden, settings))
    if print_plan:
        console.show_json(plan.describe())
        return EXIT_FINISHED
    engine.tune_process()
    is_drop_in = runs.spelling is not Spelling.ARGUMENTS
    return run_plan(plan, manager, fail_on, brief=not runs.print_log, is_drop_in=is_drop_in)


def _apply_plugin_options(ctx: click.Context, manager: Manager, plan: Plan) -> Plan:
    """Return the plan as the options of plugins on the command line change it."""
    for change, values in collect_option_actions(ctx, manager):
        plan = change(plan, values, find_set_parameters(ctx))
    return plan


def _choose_formats(manager: Manager, spelling: Spelling, *, is_xlsx: bool, compare_only: bool) -> tuple[str, ...]:
    """Return the formats of a command without ``--format`` (docs/page.md)."""
    if spelling is Spelling.PATH_OPTIONS and not is_xlsx:
        return ("csv",)
    if spelling is not Spelling.ARGUMENTS or is_xlsx or compare_only:
        return DEFAULT_FORMATS
    pages = (spec.name for spec in manager.specs("reporters", ReporterSpec) if spec.page)
    return (*DEFAULT_FORMATS, *pages)
