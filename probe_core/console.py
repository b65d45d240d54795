"""Output of the commands: results on stdout, everything about the work on stderr.

Every text is made safe for a terminal: no control character, escape sequence or direction mark of a dump is
printed. Only ``style`` makes colors.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any
from unicodedata import east_asian_width

import click

from probe_core.errors import make_printable
from probe_core.progress import ProgressListener, listen_to_progress
from probe_core.safe_text import escape_invisible, format_safe_json


def prepare() -> None:
    """Let both streams print any name in every encoding of the terminal."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure:
            reconfigure(errors="backslashreplace")


PROGRESS_INTERVAL_SECONDS = 60.0
"""Time between two lines of progress in a pipe."""
_STYLE = f"\x1b{os.urandom(8).hex()}"
"""The start and end of a mark of ``style``: random in each process, so that dumps cannot contain it."""
_MARK = re.compile(f"{_STYLE}([a-z_+]*)/{_STYLE}")


def style(text: str, fg: str | None = None, *, bold: bool = False) -> str:
    """Mark a text to be printed by this module, in color if a terminal shows it."""
    on = "+".join(filter(None, (fg, "bold" if bold else None)))
    return f"{_STYLE}{on}/{_STYLE}{text}{_STYLE}/{_STYLE}" if on else text


def _print(text: str, *, err: bool, lines: bool) -> None:
    """Print a text, made safe except for marks of ``style``, and newlines if ``lines`` is set.

    Ignores that nothing reads the output any more, as in ``probe … | head -1``.
    """
    pieces = _MARK.split(text)
    keep = "\n" if lines else ""
    shown = [escape_invisible(pieces[0], keep)]
    for on, piece in zip(pieces[1::2], pieces[2::2]):
        piece = escape_invisible(piece, keep)
        color = on.removesuffix("bold").removesuffix("+") or None
        shown.append(click.style(piece, fg=color, bold=on.endswith("bold") or None) if on else piece)
    with suppress(BrokenPipeError):
        click.echo("".join(shown), err=err)


def show(text: str = "", *, lines: bool = False, wrap: bool = False) -> None:
    """Print a line of the result.

    Args:
        text: The line.
        lines: True to print several lines, if no name in the text holds a newline.
        wrap: True for prose, which is wrapped at the width of a terminal. A command is never wrapped, so that
            it can be pasted.
    """
    if wrap and sys.stdout.isatty():
        text, lines = _wrap(escape_invisible(text, _STYLE[0]), shutil.get_terminal_size().columns), True
    _print(text, err=False, lines=lines)


def _wrap(text: str, width: int) -> str:
    """Return a text in lines of at most ``width`` columns, the further ones indented by 4 more."""
    indent = " " * (len(text) - len(text.lstrip(" ")))
    lines, used = [indent], len(indent)
    for word in text.split():
        size = sum(1 + (east_asian_width(sign) in "WF") for sign in _MARK.sub("", word))
        gap = " " if lines[-1].strip() else ""
        if gap and used + 1 + size > width:
            lines.append(f"{indent}    ")
            used, gap = len(lines[-1]), ""
        lines[-1] += gap + word
        used += len(gap) + size
    return "\n".join(lines)


def note(text: str, *, lines: bool = False) -> None:
    """Print a line about the work; several if ``lines`` is set."""
    _print(text, err=True, lines=lines)


def show_json(value: Any) -> None:
    """Print a result as JSON that is safe for a terminal and parses to the same value."""
    with suppress(BrokenPipeError):
        click.echo(format_safe_json(value, indent=2))


def warn(text: str) -> None:
    """Print a warning."""
    note(f"{style('warning', fg='yellow')}: {make_printable(text)}")


def error(what: str, fix: str = "", choices: Sequence[str] = ()) -> None:
    """Print an error in the input: what it is, how to correct it, and the valid choices."""
    note(f"{style('error', fg='red', bold=True)}: {make_printable(what)}")
    if fix:
        note(f"  {make_printable(fix)}")
    for choice in choices:
        note(f"    {make_printable(choice)}")


def show_usage_error(problem: click.ClickException) -> None:
    """Print an error in the command line. Only options that the help shows are suggested."""
    fix = ""
    if isinstance(problem, click.NoSuchOption) and problem.ctx is not None and problem.possibilities:
        shown = {flag for parameter in problem.ctx.command.params for flag in parameter.opts}
        problem.possibilities[:] = [flag for flag in problem.possibilities if flag in shown]
    if isinstance(problem, click.UsageError) and problem.ctx is not None:
        fix = f"See '{problem.ctx.command_path} --help'."
    error(problem.format_message(), fix)


def show_defect() -> None:
    """Print a defect of probe, with its traceback."""
    note(traceback.format_exc().rstrip(), lines=True)
    error("This is a defect of probe.", "Report it with the lines above and the output of 'probe plugins'.")


def is_output_pipe(problem: BrokenPipeError) -> bool:
    """Return True for a pipe that broke when click printed to it."""
    last = problem.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and last.tb_frame.f_code is click.echo.__code__


def close_broken_pipes() -> None:
    """Drop unprinted output if nothing reads it any more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _create_line_listener(label: str) -> ProgressListener:
    """Return a listener that prints a line at most every ``PROGRESS_INTERVAL_SECONDS``."""
    printed = time.monotonic()

    def watch(what: str, done: int, total: int) -> None:
        nonlocal printed
        if done < total and time.monotonic() >= printed + PROGRESS_INTERVAL_SECONDS:
            printed = time.monotonic()
            note(f"{what} {label}".rstrip() + f": {done / total:.0%}")

    return watch


@contextmanager
def show_progress(label: str = "") -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Show a bar for each phase of the work on a terminal, and a line now and then in a pipe.

    The block gets a context manager: lines that are printed within it appear above the bar.
    """
    if not sys.stderr.isatty():
        with listen_to_progress(_create_line_listener(label)):
            yield nullcontext
        return
    bar: Any = None
    phase = ""

    def watch(what: str, done: int, total: int) -> None:
        nonlocal bar, phase
        if bar is None or (what, total) != (phase, bar.length) or done < bar.pos:
            if bar is not None:
                bar.render_finish()
            phase = what
            bar = click.progressbar(length=total, label=escape_invisible(f"{what} {label}".rstrip()), file=sys.stderr)
            bar.render_progress()
        bar.update(done - bar.pos)

    @contextmanager
    def print_above() -> Iterator[None]:
        nonlocal bar
        if bar is not None:
            bar.render_finish()
            bar = None
        yield

    try:
        with listen_to_progress(watch):
            yield print_above
    finally:
        if bar is not None:
            bar.render_finish()
