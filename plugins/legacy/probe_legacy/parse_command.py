"""The command ``probe parse``: rows and call stacks of one dump, in the format of ``parse`` of ptdbg_ascend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from probe_core import console
from probe_core.errors import UserError
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.option_types import Location
from probe_core.terminal.spelling import Command, option


@click.command(cls=Command)
@click.argument("file", type=Location())
@option("-n", "--name", "prefix", default="", metavar="PREFIX",
    help="Print rows whose names begin with this, and the call stacks of their calls.")  # fmt: skip
@click.pass_context
def parse(ctx: click.Context, /, file: Path, prefix: str) -> int:
    """Print statistics and call stacks of the rows of one dump.

    FILE is a .pkl of ptdbg_ascend or torch_npu.hooks, or a dump.json. Names are those in the file.

    \b
    probe parse dump.pkl -n Torch_relu_1_forward
    probe parse dump.json -n Torch.relu.1.forward
    """
    from probe_legacy.reading.lines import PTDBG, detect_format

    if file.is_dir():
        record_files = sorted(str(path) for name in ("dump.json", "*.pkl") for path in file.rglob(name))[:10]
        fix = "Give one of the files in it:" if record_files else "Give a dump.json or a .pkl file."
        raise UserError(f"{file} is a directory, and probe parse reads one file.", fix, record_files)
    if detect_format(file) == PTDBG:
        lines = format_ptdbg_file(file, prefix)
    else:
        lines = format_run(file, prefix, ctx.find_object(Manager) or Manager(), ctx.meta.get("probe.framework"))
    is_empty = True
    for line in lines:
        console.show(line)
        is_empty = False
    if is_empty:
        console.warn(f'No row of {file} has a name that begins with "{prefix}".')
    return EXIT_FINISHED


def format_ptdbg_file(path: Path, prefix: str) -> Iterator[str]:
    """Yield lines that describe the rows of a file of ptdbg_ascend, as its ``parse`` printed them.

    Raises:
        UserError: The file cannot be read.
    """
    from probe_legacy.reading.lines import read_lines
    from probe_legacy.reading.values import format_frames, read_row_name

    lines: list[str] = []
    header_lines: list[str] = ["", "Statistic Info:"]

    def add_row(row: Any, begin: int) -> None:
        name = read_row_name(row)
        if not name.startswith(prefix):
            return
        if name.endswith("stack_info"):
            format_frames(row[1])
            lines.extend(_format_stack(name, [_format_frame(*frame) for frame in row[1]]))
        elif len(row) == 6:
            lines.extend(header_lines)
            header_lines.clear()
            numbers = row[5] if isinstance(row[5], list) else []
            lines.append(_format_row(name, row[3], row[4], [*numbers, None, None, None]))

    read_lines(path, add_row)
    yield from lines


def format_run(path: Path, prefix: str, manager: Manager, framework: str | None) -> Iterator[str]:
    """Yield lines that describe a run of any format.

    Raises:
        UserError: The file cannot be read.
    """
    from probe_core.flow.opening import open_run

    with closing(open_run(manager, path, framework)) as run:
        if run.stack_path is not None and run.stack_path.is_file():
            run.use_stacks(run.stack_path)
        header_lines = ["", "Statistic Info:"]
        for record in run.records():
            slots = [slot for slot in record.slots if slot.name.startswith(prefix)]
            for slot in slots:
                yield from header_lines
                header_lines = []
                yield _format_row(slot.name, slot.value.dtype, slot.value.extent, list(slot.value.statistics))
            frames = run.stack_of(record.key)
            if frames and (slots or record.key.startswith(prefix)):
                yield from _format_stack(record.key, [frame.split("\n") for frame in frames])


def _format_row(name: str, dtype: Any, shape: Any, numbers: list[Any]) -> str:
    maximum, minimum, mean = numbers[:3]
    return f"  [{name}][dtype: {dtype}][shape: {shape}][max: {maximum}][min: {minimum}][mean: {mean}]"


def _format_frame(file: Any, line: Any, function: Any, source: Any) -> list[str]:
    place = f'File "{file}", line {line}, in {function}'
    return [place] if source is None else [place, str(source)]


def _format_stack(name: str, frames: list[list[str]]) -> Iterator[str]:
    """Yield the lines of a call stack, outermost first."""
    yield ""
    yield f"Trace back({name}):"
    for place, *source in reversed(frames):
        yield f"  {place.rstrip(', ')}"
        yield from (f"    {line.strip()}" for line in source)
