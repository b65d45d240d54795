"""``probe grad``: commands for the gradients that the task grad_probe wrote."""

from __future__ import annotations

from pathlib import Path

import click

from probe_core import console
from probe_core.library import DEFAULT_OUTPUT
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.spelling import Command, option


@click.group()
def grad() -> None:
    """Compare the gradients of two runs that the task grad_probe wrote."""


@grad.command(cls=Command)
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("golden", type=click.Path(path_type=Path))
@option("-o", "--output", default=DEFAULT_OUTPUT, show_default=True, type=click.Path(path_type=Path),
    help="Directory of the result files; created if absent.")  # fmt: skip
def compare(target: Path, golden: Path, output: Path) -> int:
    """Compare the signs of gradients step by step, and name the first suspicious gradient.

    TARGET and GOLDEN are the dump_path of two runs recorded with task grad_probe at level L1 or L2.

    \b
    probe grad compare ./npu ./gpu -o out
    """
    from probe_watch.grad_probe import sentences
    from probe_watch.grad_probe.comparison import compare_gradients
    from probe_watch.grad_probe.rules import load_rules

    comparison = compare_gradients(target, golden)
    paths = comparison.write(output)
    console.show(comparison.sentence)
    if comparison.main is not None:
        for line in sentences.iterate_details(comparison.suspects, comparison.main, load_rules()):
            console.show(f"  {line}", wrap=True)
    skipped_steps = max(comparison.skipped_steps.values())
    for line in sentences.iterate_remarks(comparison.ranks, comparison.skipped_ranks, skipped_steps):
        console.show(f"  {line}", wrap=True)
    for path in paths:
        console.show(f"  {path}")
    return EXIT_FINISHED
