"""Lines on stderr about the recording, printed without the command line's console."""

from __future__ import annotations

import sys
from contextlib import suppress

from probe_core.errors import printable
from probe_core.safe_text import safe


def note(text: str) -> None:
    """Write one line, made safe for a terminal; a stderr that is full or closed is ignored."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{safe(text)}\n")
            sys.stderr.flush()


def error(what: str, fix: str) -> None:
    """Write two lines: a mistake or a failure, and its fix."""
    note(f"error: {printable(what)}")
    note(f"  {printable(fix)}")
