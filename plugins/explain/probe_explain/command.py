"""``probe explain``: which recorded calls introduced error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from probe_precheck.command_options import timeout_option
from probe_reporters.api import claim_time_stamp

from probe_core import console
from probe_core.model.plan import get_time_stamp
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINDINGS, EXIT_FINISHED, EXIT_INTERRUPTED
from probe_core.terminal.option_types import Location, NumberRanges
from probe_core.terminal.spelling import Command, option


@click.command(cls=Command)
@click.argument("run", type=Location())
@option("-o", "--output", default="./output", show_default=True, type=click.Path(path_type=Path),
    help="Directory of the result files; created if absent.")  # fmt: skip
@option("--framework", help="Framework of the run; detected if not given.")
@option("--step", "steps", type=NumberRanges(), default=(), help="Explain these steps only: 0,2-4.")
@option("--rank", "ranks", type=NumberRanges(), default=(), help="Explain these ranks only: 0-3,8.")
@option("--only", multiple=True, metavar="NAME",
    help="Compute only this call, or the calls of this API; may be repeated.")  # fmt: skip
@option("--jobs", "workers", type=click.IntRange(min=1), default=None, metavar="N",
    help="Number of processes.  [default: one per CPU core]")  # fmt: skip
@timeout_option
@option("--format", "format_name", metavar="NAME", default="csv", show_default=True,
    help="Format of the table: csv, xlsx, jsonl, …")  # fmt: skip
@option("--fail-on", type=click.Choice(["suspect", "incomplete"]),
    help="Exit with 1 if a call introduced error, or if a record was not computed again; always if the "
    "verdict is CANNOT TELL.")  # fmt: skip
@click.pass_context
def explain(
    ctx: click.Context,
    /,
    run: Path,
    output: Path,
    steps: tuple[int, ...],
    ranks: tuple[int, ...],
    format_name: str,
    fail_on: str | None,
    **settings: Any,
) -> int:
    """Compute recorded calls again in higher precision and say which introduced error.

    RUN is a run recorded with task tensor: a dump.json, or a rank, step or dump directory. Each call
    is computed from its recorded inputs on the CPU; what it returned on its device must be what
    rounding explains. No second run is needed.

    \b
    probe explain ./dump -o out
    probe explain ./dump/step0/rank0/dump.json --only Functional.softmax
    """
    from probe_explain.files import write_files
    from probe_explain.printing import print_verdict
    from probe_explain.run import ExplainOptions, iterate_files
    from probe_explain.run import explain as explain_files
    from probe_explain.verdict import conclude_verdict

    manager = ctx.find_object(Manager) or Manager()
    spec = manager.find("reporters", format_name, ReporterSpec)
    framework = settings["framework"] or ctx.meta.get("probe.framework")
    options = ExplainOptions(framework, settings["workers"] or 0, settings["timeout"], settings["only"])
    with claim_time_stamp(output, get_time_stamp()) as time_stamp:
        with console.show_progress():
            explanation = explain_files(run, list(iterate_files(run, manager, steps, ranks)), options, manager)
        verdict = conclude_verdict(explanation)
        print_verdict(verdict, write_files(explanation, verdict, output, time_stamp, spec))
    if explanation.interrupted:
        return EXIT_INTERRUPTED
    if verdict.lost:
        return EXIT_DATA_LOST
    return EXIT_FINDINGS if fail_on and verdict.is_failing(fail_on) else EXIT_FINISHED
