"""The command ``probe demo``: record two small training runs, one with a fault, and compare them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import zipfile
from importlib.resources import as_file, files
from pathlib import Path

import click
from probe_ranks.processes import ISOLATION_FLAGS

from probe_core import console
from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import make_directory, write_text
from probe_core.library import Comparison, create_plan
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import ReporterSpec
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.spelling import option

INTRODUCTION = """\
A one-block transformer was trained twice{how}. The golden run divides attention scores by
sqrt(16) = 4, the target run by 16. The loss hardly shows it. The first lines say where the runs diverge.
"""
FORMATS = ("xlsx", "csv")
"""Formats of the tables unless others are asked for."""
RECORDED_LIVE = ", recorded just now by probe run"
RECORDED_BEFORE = ", recorded beforehand"
SIDES = {"golden": (), "target": ("wrong",)}


@click.command()
@click.argument("directory", default="probe-demo", type=click.Path(path_type=Path))
@option("--format", "formats", help="Formats of the result.  [default: xlsx, csv and a page]")
@click.pass_context
def demo(ctx: click.Context, directory: Path, formats: str | None) -> int:
    """Record two small training runs, one with a fault, and find the fault.

    The runs and the result are written to DIRECTORY (./probe-demo). Without torch, two recorded runs
    that come with probe are compared instead.
    """
    make_directory(directory)
    source = RECORDED_LIVE
    problem = record_both(directory) if has_torch() else "torch is not installed"
    if problem:
        source = RECORDED_BEFORE
        console.note(f"{problem}: nothing is recorded, and two runs that ship with probe are compared instead.")
        unpack(directory)
    target, golden = directory / "target" / "step0", directory / "golden" / "step0"
    output = directory / "output"
    manager = ctx.find_object(Manager) or Manager()
    pages = {spec.name: spec.suffix for spec in manager.specs("reporters", ReporterSpec) if spec.page}
    asked = [*FORMATS, *pages] if formats is None else [name for name in formats.split(",") if name]
    options = {"output": output, "formats": asked, "highlight": True}
    comparison = Comparison(create_plan(manager, target, golden, options), manager)
    finished = list(comparison.run())  # a failed comparison of a single rank raises
    for conclusion in comparison.first:
        conclusion.show()
    console.show()
    console.show(INTRODUCTION.format(how=source), lines=True)
    for conclusion in comparison.last:
        conclusion.show()
    console.show()
    if "xlsx" in asked:
        console.show("The xlsx file opens on its sheet answer, the verdict; the sheet before is the table.")
    console.show("The same with a script of yours, before and after a change:")
    console.show("  probe run -o OLD train.py")
    console.show("  probe run -o NEW train.py")
    console.show("  probe compare NEW OLD -o out -hl")
    written = [path for result in finished if result.report is not None for path in result.report.files]
    for page in (path for path in written if path.suffix in pages.values()):
        console.show()
        console.show(f"The page to look at (probe show {output}):")
        console.show(f"  {page}")
    return EXIT_FINISHED


def has_torch() -> bool:
    """Return True if torch is installed; a folder left behind by an uninstalled torch has no origin."""
    spec = importlib.util.find_spec("torch")
    return spec is not None and spec.origin is not None


def record_both(directory: Path) -> str:
    """Record the training script of this package twice; return the reason of a failure, or ""."""
    script = directory / "train.py"
    write_text(script, (files("probe_pytorch") / "demo_data" / "train.py").read_text("utf-8"))
    for side, arguments in SIDES.items():
        if problem := record(script, directory / side, arguments):
            return problem
    return ""


def record(script: Path, path: Path, arguments: tuple[str, ...]) -> str:
    """Record ``script`` into ``path`` by the command line; return the reason of a failure, or ""."""
    command = [sys.executable, *ISOLATION_FLAGS, "-m", "probe_core.cli", "run", "-o", str(path), "--task", "tensor",
               "--step", "0", str(script), *arguments]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if not done.returncode:
        return ""
    lines = [line for line in done.stderr.splitlines() if "rror" in line] or ["no reason given"]
    return f"The training run could not be recorded ({make_printable(lines[0])})"


def unpack(directory: Path) -> None:
    """Unpack the two recorded runs of this package, ``target`` and ``golden``, into ``directory``.

    Raises:
        UserError: The files cannot be written.
    """
    try:
        packed = as_file(files("probe_pytorch") / "demo_data" / "runs.zip")
        with packed as path, zipfile.ZipFile(path) as archive:
            archive.extractall(directory)
    except OSError as error:
        raise UserError(
            f"The demonstration cannot be unpacked into {directory}: {error.strerror or error}.",
            "Give another directory: probe demo DIRECTORY.",
        ) from None
