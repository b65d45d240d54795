"""Lines on a terminal that are drawn again and again in the same place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import click

from probe_core.safe_text import escape_invisible


class TerminalLines:
    """A few lines at the end of what a terminal shows."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self, lines: Sequence[str]) -> None:
        """Show lines, made safe, in place of those before."""
        self.wipe()
        with suppress(BrokenPipeError):
            click.echo("\n".join(map(escape_invisible, lines)), err=True)
        self._drawn = len(lines)

    def wipe(self) -> None:
        """Take the lines off the terminal."""
        if self._drawn:
            with suppress(BrokenPipeError):
                click.echo(f"\x1b[{self._drawn}A\x1b[J", err=True, nl=False)
            self._drawn = 0
