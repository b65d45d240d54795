"""All that the commands print: results on stdout, everything about the work on stderr."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from probe_core.errors import printable
from probe_core.progress import watched

if TYPE_CHECKING:
    from probe_core.report import Report

SHOWN_FILES = 12


def prepare() -> None:
    """Make sure that no name breaks the printing, whatever the terminal's encoding."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


def show(text: str = "") -> None:
    """A line of the result."""
    click.echo(text)


def note(text: str) -> None:
    """A line about the work."""
    click.echo(text, err=True)


def warn(text: str) -> None:
    """A warning."""
    note(f"{click.style('warning', fg='yellow')}: {printable(text)}")


def error(what: str, fix: str = "", choices: Sequence[str] = ()) -> None:
    """A mistake of the user's: what, how to mend it, the choices."""
    note(f"{click.style('error', fg='red', bold=True)}: {printable(what)}")
    if fix:
        note(f"  {printable(fix)}")
    for choice in choices:
        note(f"    {printable(choice)}")


def usage(problem: click.ClickException) -> None:
    """A command line that cannot be understood."""
    fix = ""
    if isinstance(problem, click.UsageError) and problem.ctx is not None:
        fix = f"See '{problem.ctx.command_path} --help'."
    error(problem.format_message(), fix)


def defect(where: str) -> None:
    """A defect of probe itself."""
    note(traceback.format_exc().rstrip())
    error("This is a defect of probe.", f"Please report it with the lines above at {where}.")


def close_broken_pipe() -> None:
    """Whoever read our output stopped reading; end quietly."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextmanager
def progress(label: str = "") -> Iterator[None]:
    """A bar for each phase of the work on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield
        return
    bar: Any = None
    phase = ""

    def watch(what: str, done: int, total: int) -> None:
        nonlocal bar, phase
        if bar is None or (what, total) != (phase, bar.length) or done < bar.pos:
            if bar is not None:
                bar.render_finish()
            phase = what
            bar = click.progressbar(length=total, label=f"{what} {label}".rstrip(), file=sys.stderr)
            bar.render_progress()
        bar.update(done - bar.pos)

    try:
        with watched(watch):
            yield
    finally:
        if bar is not None:
            bar.render_finish()


_LEVELS = (
    ("error", "differ", "red"),
    ("warning", "to check", "yellow"),
    ("pass", "agree", "green"),
    ("skip", "not measured", None),
)
"""How the summary words and colours each level, gravest first."""


def summary(report: Report, *, brief: bool = False) -> None:
    """What a comparison came to: counts, first suspects (not in brief), files."""
    counts = report.counts
    head = f"{report.label}: " if report.label else ""
    show(
        f"{head}{counts.rows:,} rows of {report.op_count:,} ops compared by {report.mode.value} "
        f"in {report.seconds:.1f} s"
    )
    numbers = {level.value: count for level, count in counts.levels.items()}
    parts = [
        click.style(f"{numbers[level]:,} {word}", fg=colour if numbers[level] else None)
        for level, word, colour in _LEVELS
    ]
    alone = f"{counts.target_only:,} only in the target, {counts.golden_only:,} only in the golden"
    show(f"  {', '.join(parts)}; {counts.matched:,} rows matched, {alone}")
    if not brief:
        _suspects(report)
    for line in report.notes:
        show(f"  note: {printable(line)}")
    for path in report.files[:SHOWN_FILES]:
        show(f"  wrote {path}")
    if report.interrupted:
        warn(f"interrupted after {counts.rows:,} of {report.row_count:,} rows; the files hold those.")
    if report.unreadable_count:
        error(
            f"{report.unreadable_count} tensor file(s) could not be read: {report.unreadable[0]}.",
            "Their rows are marked in the result; copy or record the run again to measure them.",
            report.unreadable[1:],
        )


def _suspects(report: Report) -> None:
    show("  first suspects:" if report.suspects else "  no suspects")
    for suspect in report.suspects:
        show(f"    {click.style(printable(suspect.row), bold=True)}  (row {suspect.line})")
        show(f"        {printable(suspect.why)}")
        if suspect.module:
            show(f"        in {printable(suspect.module, 200)}")
        if suspect.where:
            show(f"        {printable(suspect.where, 200)}")
