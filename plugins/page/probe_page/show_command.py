"""``probe show``: open the page of a comparison."""

from __future__ import annotations

import os
import sys
import webbrowser
from pathlib import Path

import click

from probe_core.cli import console
from probe_core.cli.main import FINISHED
from probe_core.cli.spelling import Command, option
from probe_core.errors import UserError
from probe_core.library import OUTPUT

PAGES = ("compare_summary_*.html", "*compare_result*.html", "step*/*compare_result*.html")
"""Names of pages, those over several comparisons first."""


@click.command(cls=Command)
@click.argument("out", required=False, default=OUTPUT, type=click.Path(path_type=Path))
@option("--print", "only_print", is_flag=True, help="Print the path of the page, and open nothing.")
def show(out: Path, only_print: bool) -> int:
    """Open the page of a comparison in a browser.

    OUT is the directory that `probe compare` wrote to (./output), or a page. The newest page is opened; of a
    comparison of several ranks, the one over all of them. Without a browser, its path is printed.

    \b
    probe compare target_dump golden_dump -o out
    probe show out
    """
    page = newest(out).resolve()
    if only_print or not _opened(page):
        console.show(str(page))
    else:
        console.show(f"opened {page}")
    return FINISHED


def newest(out: Path) -> Path:
    """Return the newest page in a directory, or the page itself.

    Raises:
        UserError: There is none.
    """
    if out.is_file():
        return out
    for pattern in PAGES:
        found = sorted(out.glob(pattern), key=lambda path: (_time_stamp(path), path.name))
        stamps = {_time_stamp(path) for path in found}
        if found and pattern == PAGES[0]:
            others = [path for other in PAGES[1:] for path in out.glob(other)]
            if max(stamps) < max(map(_time_stamp, others), default=""):
                continue  # a later comparison had one rank
        if found:
            return next(path for path in found if _time_stamp(path) == max(stamps))
    raise UserError(
        f"There is no page in {out}.",
        "Write one: probe compare TARGET GOLDEN -o OUT --format xlsx,html",
    )


def _time_stamp(path: Path) -> str:
    """Return the time stamp in the name of a result file."""
    parts = path.stem.removesuffix("_interrupted").rpartition("_")
    return parts[2]


def _opened(page: Path) -> bool:
    """Open a page in a browser; return False where there is none, or no screen to show it on."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(page.as_uri())
    except webbrowser.Error:
        return False
