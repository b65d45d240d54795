"""The sub-commands of ``probe parse``, with the names and options of the interactive parse tool."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from probe_core import console
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.option_types import Location
from probe_core.terminal.spelling import Command, option
from probe_legacy import parse_command
from probe_legacy.convert_command import LAYOUTS, run_conversion

CONVERTED_DIRECTORY = Path("parse_data", "dump_convert")
OPERATOR_DIRECTORY = Path("parse_data", "acl_batch_convert")
COMPARISON_DIRECTORY = Path("parse_data", "compare_result")
"""Directories that the tool wrote to."""
_path = partial(click.Path, path_type=Path)
_script: Callable[[Any], Any] = option(
    "-asc",
    "script",
    hidden=True,
    help="Path of msaccucmp, which is not needed.",
    silent=("-cmp_path", "--msaccucmp_path", "--ascend_path"),
)
_overwrite: Callable[[Any], Any] = option("--overwrite", is_flag=True, help="Replace files of an earlier conversion.")


def _add_target_option(name: str, text: str) -> Callable[[Any], Any]:
    """Return the option of the dump that is converted or judged."""
    decorator: Callable[[Any], Any] = option(
        "-m", "--my", name, also=("--my_dump_path",), required=True, type=_path(), help=text
    )
    return decorator


def _add_golden_option(text: str) -> Callable[[Any], Any]:
    """Return the option of the golden."""
    decorator: Callable[[Any], Any] = option(
        "-g", "--golden", also=("--golden_dump_path",), required=True, type=_path(), help=text
    )
    return decorator


def _add_output_option(default: Path, text: str) -> Callable[[Any], Any]:
    """Return the option of the directory to write to."""
    decorator: Callable[[Any], Any] = option(
        "-o", "--output", also=("-out", "--output_path"), default=default, show_default=True, type=_path(),
        help=text,
    )  # fmt: skip
    return decorator


@click.command(cls=Command)
@option("-f", "--file", "file", required=True, type=Location(), help="A .pkl, or a dump.json.")
@option("-n", "--name", "prefix", default="", metavar="PREFIX",
    help="Print rows whose names begin with this, and the call stacks of their calls.")  # fmt: skip
@click.pass_context
def pk(ctx: click.Context, file: Path, prefix: str) -> int:
    """Print statistics and call stacks of the rows of one dump.

    The same as probe parse FILE -n PREFIX.
    """
    code: int = ctx.invoke(parse_command.parse, file=file, prefix=prefix)
    return code


@click.command(cls=Command)
@option("-n", "--name", "file", required=True, type=_path(), help="A .npy, or a tensor file of a run.")
@option("--no-text", is_flag=True, help="Write no text file.")
@click.pass_context
def pt(ctx: click.Context, file: Path, no_text: bool) -> int:
    """Print the first 128 values of a tensor, and its statistics.

    All values are written to a text file beside it, FILE.txt, unless that exists.
    """
    from probe_legacy.parse.tensors import format_tensor, load, write_text

    array = load(file, _get_manager(ctx))
    for line in format_tensor(array):
        console.show(line)
    console.show(f"Path: {file}")
    if not no_text:
        console.show(f"TextFile: {write_text(array, file)}")
    return EXIT_FINISHED


@click.command(cls=Command)
@_add_target_option("mine", "A .npy, or a tensor file of a run.")
@_add_golden_option("The same of the golden.")
@option("-p", "--print", "count", default=20, show_default=True, type=click.IntRange(0, 10_000),
    help="Number of values in a table.")  # fmt: skip
@option("-s", "--save", is_flag=True, help="Write the values of both to text files beside them.")
@option("-al", "--atol", "absolute", default=0.001, show_default=True, type=click.FloatRange(min=0),
    help="Absolute error that is accepted.")  # fmt: skip
@option("-rl", "--rtol", "relative", default=0.001, show_default=True, type=click.FloatRange(min=0),
    help="Error relative to the golden that is accepted.")  # fmt: skip
@click.pass_context
def cn(ctx: click.Context, mine: Path, golden: Path, count: int, save: bool, absolute: float, relative: float) -> int:
    """Compare two tensors value by value.

    A value is wrong if it differs by more than ATOL + RTOL * |golden|. Tensors of different sizes are
    compared as if the shorter one ended with zeros.
    """
    from probe_legacy.parse.elements import compare, format_comparison
    from probe_legacy.parse.tensors import format_statistics, load, write_text

    arrays = [load(file, _get_manager(ctx)) for file in (mine, golden)]
    if arrays[0].shape != arrays[1].shape:
        shapes = " and ".join(str(list(array.shape)) for array in arrays)
        console.warn(
            f"The shapes {shapes} differ; values are compared in the order of the files, and the shorter one "
            "ends with zeros."
        )
    compared = compare(arrays[0], arrays[1], absolute, relative, count)
    for line in format_comparison(compared):
        console.show(line)
    for title, file, array in zip(("Left:", "Right:"), (mine, golden), arrays):
        console.show(title)
        console.show(f"  NpyFile: {file}")
        if save:
            console.show(f"  TxtFile: {write_text(array, file)}")
        console.show(f"  NpySpec: {format_statistics(array)}")
    console.show(f"NumCnt:   {compared.total}")
    console.show(f"AllClose: {compared.all_close}")
    console.show(f"CosSim:   {compared.cosine!s}")
    console.show(f"ErrorPer: {compared.error_ratio}  (rl= {relative:g}, al= {absolute:g})")
    return EXIT_FINISHED


@click.command(cls=Command)
@option("-n", "--name", "source", required=True, type=_path(), help="A dump, or a directory of them.")
@option("-f", "--format", "layout", type=click.Choice(LAYOUTS), default="device", show_default=True,
    help="Layout to write: device is the recorded one, host that of the program.")  # fmt: skip
@_add_output_option(CONVERTED_DIRECTORY, "Directory of the files; created if absent.")
@_overwrite
@_script
def dc(source: Path, layout: str, output: Path, overwrite: bool, script: str | None) -> int:
    """Convert ACL dumps to .npy files.

    The same as probe convert, but in the layout of the device unless -f gives another.
    """
    from probe_legacy.acl.convert import place_beside
    from probe_legacy.acl.tree import find_dumps

    return run_conversion(find_dumps(source), output, layout, overwrite, place_beside)


@click.command(cls=Command)
@_add_target_option("source", "A directory of dumps.")
@_add_output_option(OPERATOR_DIRECTORY, "Directory of the files; created if absent.")
@_script
def cad(source: Path, output: Path, script: str | None) -> int:
    """Convert a directory of ACL dumps, and sort the files by operator.

    They are written to OUTPUT/{time stamp}/{operator}/{time of the dump}/, in the layout of the device.
    Files whose names are not {type}.{operator}.{task}.{stream}.{time} are left out.
    """
    from probe_core.errors import UserError
    from probe_core.model.plan import get_time_stamp
    from probe_legacy.acl.convert import place_by_operator
    from probe_legacy.acl.tree import find_dumps

    dumps = [candidate for candidate in find_dumps(source) if candidate.parts is not None and candidate.parts.stream]
    if not dumps:
        raise UserError(
            f"No file in {source} has the name of a dump, type.operator.task.stream.time.",
            f"Convert files of any name with: probe convert {source}",
        )
    return run_conversion(dumps, output / get_time_stamp(), "device", False, place_by_operator)


@click.command(cls=Command)
@_add_target_option("mine", "A directory of dumps, or of converted ones.")
@_add_golden_option("The same of the golden.")
@_add_output_option(COMPARISON_DIRECTORY, "Directory of the table; created if absent.")
@_script
def vc(mine: Path, golden: Path, output: Path, script: str | None) -> int:
    """Compare two directories of ACL dumps, array by array.

    Dumps of one operator are paired in the order of their times. The table batch_compare_{time stamp}.csv
    has a row for each array. Runs of today are compared by probe compare.
    """
    from probe_reporters.api import claim_time_stamp

    from probe_core.errors import format_count
    from probe_core.model.plan import get_time_stamp
    from probe_legacy.parse.kernels import compare

    with claim_time_stamp(output, get_time_stamp()) as stamp, console.show_progress():
        result = compare(mine, golden, output, stamp)
    for problem in result.problems:
        console.warn(problem)
    compared = format_count(result.pairs, "array")
    console.show(f"{compared} compared, {result.equal} equal, {result.alone} without partner")
    console.show(f"  wrote {result.table}")
    return EXIT_FINISHED


def _get_manager(ctx: click.Context) -> Manager:
    return ctx.find_object(Manager) or Manager()


ALL: dict[str, click.Command] = {"pk": pk, "pt": pt, "cn": cn, "dc": dc, "vc": vc, "cad": cad}
"""The sub-commands by their names."""
