"""Messages about the recording on stderr, independent of the command line's console."""

from __future__ import annotations

import sys
from contextlib import suppress

from probe_core.errors import make_printable
from probe_core.safe_text import escape_invisible


def note(text: str) -> None:
    """Print one line, made safe for a terminal; a full or closed stderr is ignored."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{escape_invisible(text)}\n")
            sys.stderr.flush()


class Notices:
    """Messages that are each printed once in a process."""

    def __init__(self) -> None:
        self._printed: set[str] = set()

    def print_once(self, text: str) -> None:
        """Print one line, unless it was printed before."""
        if text not in self._printed:
            self._printed.add(text)
            note(text)


def print_error(problem: str, fix: str) -> None:
    """Print two lines: a mistake or failure, and what to do about it."""
    note(f"error: {make_printable(problem)}")
    note(f"  {make_printable(fix)}")
