"""``probe demo``: the main job on a recorded pair of runs with a known fault."""

from __future__ import annotations

import zipfile
from importlib.resources import as_file, files
from pathlib import Path

import click

from probe_core.cli import console
from probe_core.cli.compare import run_plan, time_stamp
from probe_core.errors import UserError
from probe_core.manager import Manager
from probe_core.plan import Plan
from probe_core.store.atomic import make_directory

STORY = """\
A one-block transformer was recorded twice, one training step each. The golden divides attention
scores by sqrt(16) = 4, the target by 16. The loss hardly tells: 3.561 for 3.555. probe reads both
runs and says where they part:
"""


@click.command()
@click.argument("directory", default="probe-demo", type=click.Path(path_type=Path))
@click.option("--format", "formats", default="xlsx,csv", show_default=True, help="Formats of the result.")
@click.pass_context
def demo(ctx: click.Context, directory: Path, formats: str) -> int:
    """Compare a recorded pair of runs with a known fault.

    The runs are unpacked into DIRECTORY (./probe-demo), with the result beside them.
    """
    make_directory(directory)
    unpack(directory)
    target, golden = directory / "target", directory / "golden"
    console.show(STORY)
    plan = Plan(
        target=target,
        golden=golden,
        output=directory / "output",
        time_stamp=time_stamp(),
        formats=tuple(name for name in formats.split(",") if name),
        highlight=True,
    )
    code = run_plan(plan, ctx.find_object(Manager) or Manager())
    console.show(f"\nThe same with your runs: probe compare {target} {golden} -o {plan.output} -hl")
    return code


def unpack(directory: Path) -> None:
    """Put the two recorded runs, ``target`` and ``golden``, into ``directory``."""
    try:
        packed = as_file(files("probe_pytorch") / "demo_data" / "runs.zip")
        with packed as path, zipfile.ZipFile(path) as archive:
            archive.extractall(directory)
    except OSError as error:
        raise UserError(
            f"The demonstration cannot be unpacked into {directory}: {error.strerror or error}.",
            "Give another directory: probe demo DIRECTORY.",
        ) from None
