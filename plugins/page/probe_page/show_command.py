"""``probe show``: open the page of a comparison."""

from __future__ import annotations

import os
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click
from probe_reporters.api import MERGED_FILE_PREFIX

from probe_core import console
from probe_core.errors import UserError
from probe_core.library import DEFAULT_OUTPUT
from probe_core.plugins.manager import Manager
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.spelling import Command, option
from probe_page.language import LANGUAGES

MERGED_PATTERN = f"{MERGED_FILE_PREFIX}*"
RESULT_PATTERNS = ("accuracy_checking_result_*.csv", "api_precision_compare_result_*.csv", f"{MERGED_PATTERN}.*")
"""Names of results whose pages are made from them: pre-checks, and results of several ranks."""
ONLINE_PATTERN = "online_[0-9]*.json"
"""Name of the state of an online pre-check."""
PAGE_PATTERNS = (
    "compare_summary_*.html", "*compare_result*.html", "step*/*compare_result*.html",
    "step*/*/*compare_result*.html",
)  # fmt: skip
"""Names of pages of comparisons, those over several first."""
RESULT_PAGE_PATTERNS = (
    "accuracy_checking_result_*.html",
    "api_precision_compare_result_*.html",
    f"{MERGED_PATTERN}.html",
)
"""Names of pages that are made from results."""


@click.command(cls=Command)
@click.argument("out", required=False, default=DEFAULT_OUTPUT, type=click.Path(path_type=Path))
@option("--print", "only_print", is_flag=True, help="Print the path of the page, and open nothing.")
@option("--lang", type=click.Choice(LANGUAGES), default=LANGUAGES[0], show_default=True,
    help="Language that a page which is made now opens in.")  # fmt: skip
@click.pass_context
def show(ctx: click.Context, out: Path, only_print: bool, lang: str) -> int:
    """Open the page of a comparison, a pre-check or a merged result in a browser.

    OUT is the directory that the command wrote to (./output), a page, or a result. The newest page is opened;
    of a comparison of several ranks, the one over all of them. The page of a result of run-ut,
    api-precision-compare or merge-result is made from its files. Without a browser, its path is printed.

    \b
    probe compare target_dump golden_dump -o out
    probe show out
    """
    if any(out.glob(ONLINE_PATTERN)) and not _list_files(out, PAGE_PATTERNS):
        raise UserError(
            f"{out} holds results of the online pre-check; their verdict has no page.",
            "Read the first line that the receiver printed, or online_*.json there; or give one csv to show.",
        )
    result = find_newest_result(out)
    if result is not None:
        page = write_page(result, ctx.find_object(Manager) or Manager(), lang)
    else:
        page = find_newest_page(out)
    page = page.resolve()
    if only_print or not _open_page(page):
        console.show(str(page))
    else:
        console.show(f"opened {page}")
    return EXIT_FINISHED


def find_newest_page(out: Path) -> Path:
    """Return the newest page in a directory, or the page itself.

    Raises:
        UserError: There is none.
    """
    if out.is_file():
        return get_page_path(out) if any(map(out.match, RESULT_PATTERNS)) else out
    pages = _list_files(out, (*PAGE_PATTERNS, *RESULT_PAGE_PATTERNS))
    if pages:
        return max(pages, key=_parse_time_stamp)  # the first of the newest pages
    message = f"There is no page in {out}." if out.exists() else f"{out} does not exist."
    raise UserError(message, "Write a page: probe compare TARGET GOLDEN -o OUT")


def find_newest_result(out: Path) -> Path | None:
    """Return the newest result in a directory, or the result itself, if its page is to be made from it.

    None if its page is there and no older than it, or if there is a page of a newer time stamp.
    """
    is_directory = not out.is_file()
    files = _list_files(out, RESULT_PATTERNS) if is_directory else [out]
    results = [path for path in files if path.suffix != ".html" and any(map(path.match, RESULT_PATTERNS))]
    stamp = max(map(_parse_time_stamp, results), default="")
    pages = _list_files(out, (*PAGE_PATTERNS, *RESULT_PAGE_PATTERNS))
    if not results or stamp < max(map(_parse_time_stamp, pages), default=""):
        return None
    result = min(path for path in results if _parse_time_stamp(path) == stamp)
    page = get_page_path(result)
    return None if is_fresh(page, result) else result


def get_page_path(result: Path) -> Path:
    """Return the path of the page that is made from a result."""
    if result.match(f"{MERGED_PATTERN}.*"):
        return result.with_name(f"{MERGED_PATTERN.replace('*', _parse_time_stamp(result))}.html")
    return result.with_suffix(".html")


def is_fresh(page: Path, result: Path) -> bool:
    """Return True if a page exists and is no older than the result that it is made from."""
    return page.is_file() and page.stat().st_mtime_ns >= result.stat().st_mtime_ns


def write_page(result: Path, manager: Manager, lang: str) -> Path:
    """Write the page of a result.

    Raises:
        UserError: The result cannot be read, or the page cannot be written.
    """
    if result.match(f"{MERGED_PATTERN}.*"):
        from probe_page.merged import write_merged_page

        return write_merged_page(result, lang)
    from probe_precheck.model import ResultPaths

    from probe_page.checks import write_check

    return write_check(ResultPaths(result), manager, lang)


def _list_files(out: Path, patterns: Sequence[str]) -> list[Path]:
    """Return the files in a directory that match a pattern, in the order of the patterns and then of their names."""
    return [path for pattern in patterns for path in sorted(out.glob(pattern), key=lambda path: path.name)]


def _parse_time_stamp(path: Path) -> str:
    """Return the time stamp in the name of a result file."""
    parts = path.stem.removesuffix("_interrupted").rpartition("_")
    return parts[2]


def _open_page(page: Path) -> bool:
    """Open a page in a browser; return False where there is none, or no screen to show it on."""
    if sys.platform == "linux" and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return webbrowser.open(page.as_uri())
    except webbrowser.Error:
        return False
