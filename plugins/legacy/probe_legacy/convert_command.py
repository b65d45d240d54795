"""The command ``probe convert``: ACL dumps as ``.npy`` files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from probe_reporters.api import claim_time_stamp

from probe_core import console
from probe_core.errors import format_count
from probe_core.model.plan import get_time_stamp
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_FINISHED
from probe_core.terminal.spelling import Command, option

if TYPE_CHECKING:
    from probe_legacy.acl.convert import Place
    from probe_legacy.acl.tree import DumpCandidate

LAYOUTS = ("host", "device", "ND", "NCHW", "NHWC", "HWCN", "CHWN")
MAX_LISTED_PROBLEMS = 20
"""Number of problems that are printed; the others are counted."""


@click.command(cls=Command)
@click.argument("source", metavar="DIR", type=click.Path(path_type=Path))
@option("-o", "--output", default="./output", show_default=True, type=click.Path(path_type=Path),
    help="Directory of the files; created if absent.")  # fmt: skip
@option("--layout", type=click.Choice(LAYOUTS), default=LAYOUTS[0], show_default=True,
    help="Layout to write: host is that of the program, device the recorded one.")  # fmt: skip
@option("--overwrite", is_flag=True, help="Replace files of an earlier conversion.")
def convert(source: Path, output: Path, layout: str, overwrite: bool) -> int:
    """Convert ACL dumps of an NPU to .npy files.

    DIR is a directory of dumps, or one dump. Each input and output becomes a file in the shape that it
    had in the program, without the padding of the device; reports of overflows (Opdebug) become .json
    and are explained in words. A table, convert_{time stamp}.csv, lists all files.

    \b
    probe convert dump/output -o arrays
    """
    from probe_legacy.acl.convert import place_beside
    from probe_legacy.acl.tree import find_dumps

    return run_conversion(find_dumps(source), output, layout, overwrite, place_beside)


def run_conversion(dumps: Sequence[DumpCandidate], output: Path, layout: str, overwrite: bool, place: Place) -> int:
    """Convert dumps, print what was written, and return the exit code.

    Args:
        dumps: The dumps.
        output: The directory to write to.
        layout: The layout to write.
        overwrite: True to replace files of an earlier conversion.
        place: The function that says where the files of a dump go.

    Raises:
        UserError: A file cannot be written or would be replaced, or no dump could be read.
    """
    from probe_legacy.acl.convert import check_nothing_is_replaced
    from probe_legacy.acl.convert import convert as converted

    if not overwrite:
        check_nothing_is_replaced(dumps, output, place)
    with claim_time_stamp(output, get_time_stamp()) as stamp, console.show_progress():
        result = converted(dumps, output, stamp, layout, place)
    for sentence in result.explained:
        console.show(sentence)
    problems = [*result.problems, *result.notes]
    for problem in problems[:MAX_LISTED_PROBLEMS]:
        console.warn(problem)
    if len(problems) > MAX_LISTED_PROBLEMS:
        console.warn(f"{len(problems) - MAX_LISTED_PROBLEMS} more problems are not shown; mend or remove those files.")
    console.show(f"  wrote {format_count(result.files, 'file')} of {format_count(result.dumps, 'dump')} to {output}")
    if result.unconverted_count:
        console.show(
            f"  not in the wanted shape: {format_count(result.unconverted_count, 'array')}; the column Message says why"
        )
    console.show(f"  wrote {result.table}")
    return EXIT_DATA_LOST if result.problems else EXIT_FINISHED
