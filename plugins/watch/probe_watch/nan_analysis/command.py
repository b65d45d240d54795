"""The command ``probe nan-analyze``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click
from probe_ranks.api import find_ranks, parse_rank_number

from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import make_directory, remove_leftovers, write_text
from probe_core.flow.opening import open_run
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED
from probe_core.terminal.option_types import NumberRanges
from probe_core.terminal.spelling import Command, option
from probe_watch.nan_analysis import msprobe_file, result_file, sentences
from probe_watch.nan_analysis.analysis import analyze_step
from probe_watch.nan_analysis.findings import NonFiniteAnalysis

DEFAULT_OUTPUT = "./output"


@click.command(cls=Command)
@option("-i", "--input", "run", also=["--input_path"], required=True, type=click.Path(path_type=Path),
    help="A step directory of a recorded run; or its root, a rank directory, or a dump.json.")  # fmt: skip
@option("-o", "--output", also=["--output_path"], default=DEFAULT_OUTPUT, show_default=True,
    type=click.Path(path_type=Path), help="Directory of the result files; created if absent.")  # fmt: skip
@option("--step", "steps", type=NumberRanges(), default=(), help="Search these steps only: 0,2-4.")
@option("--fail-on", type=click.Choice(["found"]),
    help="Exit with 1 if a value that is not finite was found.")  # fmt: skip
@click.pass_context
def nan_analyze(ctx: click.Context, /, run: Path, output: Path, steps: tuple[int, ...], fail_on: str | None) -> int:
    """Find the first nan or infinity of a run, over all its ranks and what they communicate.

    No second run is needed. Of several steps, the first one with such a value is reported.

    \b
    probe nan-analyze -i ./dump/step0 -o out
    """
    manager = ctx.find_object(Manager) or Manager()
    framework = ctx.meta.get("probe.framework")
    has_finding = False
    for analysis in iterate_analyses(run, manager, steps, framework):
        has_finding = bool(analysis.first)
        _show(analysis, write_files(analysis, output) if has_finding else [])
        if has_finding:
            break
    return EXIT_FINDINGS if has_finding and fail_on else EXIT_FINISHED


def iterate_analyses(
    path: Path, manager: Manager, steps: Collection[int] = (), framework: str | None = None
) -> Iterator[NonFiniteAnalysis]:
    """Yield the analysis of each step of a run, in order.

    Args:
        path: The run: its root, a step or rank directory, or a record file.
        manager: The plugins, among them the readers of runs.
        steps: The steps to search; empty for all.
        framework: The framework that recorded the run; None to detect it.

    Raises:
        UserError: The run cannot be read, or holds no statistics.
    """
    for name, files in find_ranks(path, steps, manager.record_files()).items():
        if not files:
            raise UserError(f"{path / name} has no record of calls.", "Record the run again; check scope and list.")
        for rank in _list_ranks_without_record(path / name, files):
            console.warn(f"rank {rank} has no record of calls and is left out")
        with console.show_progress(), _open_runs(files, manager, framework) as runs:
            analysis = analyze_step(runs, name or _find_step_name(path))
            if all(rank.unknown == rank.tensors for rank in analysis.ranks.values()):
                raise UserError(
                    f"{path / name} holds no statistics of tensors, so no value can be examined.",
                    'Record with "task": "statistics" or "tensor", without "summary_mode": "md5".',
                )
            yield analysis


def _list_ranks_without_record(step: Path, files: Mapping[int, Path]) -> list[int]:
    """Return the numbers of rank directories in a step that hold no record of calls."""
    names = [child.name for child in step.iterdir() if child.is_dir()] if step.is_dir() else []
    numbers = {parse_rank_number(name) for name in names} - {None, *files}
    return sorted(number for number in numbers if number is not None)


@contextmanager
def _open_runs(files: Mapping[int, Path], manager: Manager, framework: str | None) -> Iterator[dict[int, Run]]:
    """Open the runs of all ranks while the block runs."""
    with ExitStack() as stack:
        runs: dict[int, Run] = {}
        for rank, file in files.items():
            runs[rank] = open_run(manager, file, framework)
            stack.callback(runs[rank].close)
        yield runs


def _find_step_name(path: Path) -> str:
    """Return the name of the step directory in a path; empty if there is none."""
    parts = reversed(path.resolve().parts)
    return next((part for part in parts if part.startswith("step") and part[4:].isdecimal()), "")


def write_files(analysis: NonFiniteAnalysis, output: Path) -> list[Path]:
    """Write both result files, and return their paths.

    Raises:
        UserError: The output directory cannot be written to.
    """
    make_directory(output)
    remove_leftovers(output)
    stamp = time.time_ns()
    contents: dict[str, Any] = {
        f"anomaly_analyze_{stamp}.json": msprobe_file.create_content(analysis),
        f"nan_analysis_{stamp}.json": result_file.create_content(analysis),
    }
    for name, content in contents.items():
        write_text(output / name, json.dumps(content, indent=2) + "\n")
    return [output / name for name in contents]


def _show(analysis: NonFiniteAnalysis, paths: list[Path]) -> None:
    """Print the verdict, the path over the ranks, and what was examined."""
    for line in sentences.iterate_gaps(analysis):
        console.warn(line)
    if analysis.first:
        text = sentences.format_verdict(analysis.first[0], analysis.step)
        console.show(console.style(make_printable(text), bold=True))
        for line in sentences.iterate_details(analysis):
            console.show(f"  {make_printable(line)}")
    else:
        place = f"{analysis.step}: " if analysis.step else ""
        console.show(f"{place}{sentences.NOTHING}.")
    for line in (*sentences.iterate_coverage(analysis), *sentences.format_written_paths(paths)):
        console.show(f"  {make_printable(line)}")
