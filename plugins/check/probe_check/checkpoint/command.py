"""The command ``probe checkpoint``."""

from __future__ import annotations

from pathlib import Path

import click

from probe_check.checkpoint import sentences
from probe_check.checkpoint.comparison import compare_checkpoints
from probe_check.checkpoint.similarity_file import DEFAULT_OUTPUT, check_output, write_similarities
from probe_core import console
from probe_core.terminal.exit_codes import EXIT_FINDINGS, EXIT_FINISHED
from probe_core.terminal.spelling import Command, option


@click.command(cls=Command)
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("golden", type=click.Path(path_type=Path))
@option("-o", "--output", default=DEFAULT_OUTPUT, show_default=True, type=click.Path(path_type=Path),
    help="The result file; it must not exist.")  # fmt: skip
@option("-m", "--mapping", type=click.Path(path_type=Path),
    help="yaml file that maps names of tensors, or parts of them, to those of GOLDEN.")  # fmt: skip
@option("--fail-on", type=click.Choice(["difference"]), help="Exit with 1 if the checkpoints differ.")
def checkpoint(target: Path, golden: Path, output: Path, mapping: Path | None, fail_on: str | None) -> int:
    """Compare the tensors of two checkpoints, and name those that were swapped, copied or not updated.

    TARGET and GOLDEN are files or directories: safetensors, .pt, .pth and .bin files, sharded models,
    torch.distributed.checkpoint, Megatron. Nothing in them is unpickled.

    \b
    probe checkpoint ./target ./golden -o out.json
    """
    return run_comparison(target, golden, output, mapping, fail_on=fail_on is not None)


def run_comparison(
    target: Path, golden: Path, output: Path, mapping: Path | None = None, *, fail_on: bool = False
) -> int:
    """Compare two checkpoints, write the result file, print the verdict, and return the exit code."""
    check_output(output)
    with console.show_progress():
        comparison = compare_checkpoints(target, golden, mapping)
    write_similarities(comparison, output)
    console.show(console.style(comparison.sentence, bold=True))
    for line in sentences.format_details(comparison):
        console.show(f"  {line}", wrap=True)
    console.show(f"  {output}")
    return EXIT_FINDINGS if fail_on and not comparison.agrees else EXIT_FINISHED
