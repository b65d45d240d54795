"""The command ``probe config-check``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from probe_check.checkpoint.command import run_comparison
from probe_check.checkpoint.similarity_file import DEFAULT_OUTPUT as DEFAULT_SIMILARITIES
from probe_check.config_check import collection, sentences
from probe_check.config_check.comparison import ConfigComparison
from probe_check.config_check.items import SEVERITY, DifferenceLevel
from probe_check.config_check.pack_file import check_name, write_pack
from probe_check.config_check.results import compare_and_write, is_pack
from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED
from probe_core.terminal.spelling import Command, option

DEFAULT_PACK = Path("config_check_pack.zip")
DEFAULT_OUTPUT = Path("config_check_result")
DEFAULT_FRAMEWORK = "pytorch"


@click.command(cls=Command)
@option(
    "-d",
    "--dump",
    is_flag=True,
    help="Collect the environment, the packages, and the hyper-parameters in FILES.",
)
@option("-c", "--compare", is_flag=True, help="Compare the two packs or recorded runs BENCH and CMP.")
@option("-o", "--output", type=click.Path(path_type=Path), also=["--output_path"],
    help=f"With -d, the pack [default: {DEFAULT_PACK}]; with -c, the directory of the results "
    f"[default: {DEFAULT_OUTPUT}].")  # fmt: skip
@option("--fail-on", type=click.Choice([DifferenceLevel.WARNING.value, DifferenceLevel.ERROR.value]),
    help="With -c: exit with 1 if an item has this level or a worse one.")  # fmt: skip
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[FILES...] | [BENCH CMP]")
@click.pass_context
def config_check(
    ctx: click.Context, /, dump: bool, compare: bool, output: Path | None, fail_on: str | None,
    paths: tuple[Path, ...],
) -> int:  # fmt: skip
    """Collect the configuration of a training into a pack, or compare two packs.

    FILES are shell scripts and yaml files. BENCH and CMP are packs (zip files, or directories into which they
    were unpacked), or recorded runs, whose conditions are compared. Two checkpoints are compared as by
    probe checkpoint.

    \b
    probe config-check -d train.sh -o bench.zip
    probe config-check -c bench.zip cmp.zip -o out
    """
    framework = ctx.meta.get("probe.framework") or DEFAULT_FRAMEWORK
    if dump == compare:
        raise UserError("Exactly one of -d and -c is needed.", "Give -d to collect, or -c BENCH CMP to compare.")
    if dump:
        return _collect(paths, output or DEFAULT_PACK, framework)
    return _compare(paths, output, framework, fail_on)


def _collect(files: Sequence[Path], output: Path, framework: str) -> int:
    """Write a pack of what can be collected without running the training."""
    check_name(output)
    members = {
        **collection.collect_static_members(files),
        "conditions.json": collection.format_conditions(framework),
    }
    write_pack(output, members)
    if files and not any(name.startswith("hyperparameters/") for name in members):
        console.warn("the files name no hyper-parameters: no training command or value was recognized in them")
    console.show(f"wrote {make_printable(str(output))}: {', '.join(members)}")
    return EXIT_FINISHED


def _compare(paths: Sequence[Path], output: Path | None, framework: str, fail_on: str | None) -> int:
    """Compare two packs or, as msprobe's command does, two checkpoints, and write the results."""
    if len(paths) != 2:
        raise UserError(f"-c needs two paths, and {len(paths)} were given.", "Give -c BENCH CMP.")
    if all(path.exists() and not is_pack(path) for path in paths):
        return run_comparison(paths[0], paths[1], output or Path(DEFAULT_SIMILARITIES), fail_on=fail_on is not None)
    comparison, written = compare_and_write(paths[0], paths[1], output or DEFAULT_OUTPUT, framework)
    _show(comparison, written)
    has_found = fail_on is not None and SEVERITY[comparison.level] >= SEVERITY[DifferenceLevel(fail_on)]
    return EXIT_FINDINGS if has_found else EXIT_FINISHED


def _show(comparison: ConfigComparison, written: list[Path]) -> None:
    """Print the verdict, further differences, what was not compared, and the files."""
    for gap in comparison.gaps:
        console.warn(sentences.describe_gap(gap, comparison))
    console.show(console.style(make_printable(sentences.format_verdict(comparison)), bold=True))
    for line in (*sentences.format_details(comparison), *sentences.describe_written_files(written)):
        console.show(f"  {make_printable(line)}")
