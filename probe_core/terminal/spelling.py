"""Spellings of options: main ones are shown, older ones are accepted (docs/command-line.md#spellings)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import click


def list_spellings(name: str) -> tuple[str, ...]:
    """Return a name with dashes and with underscores: ``--fail-on`` and ``--fail_on``."""
    bare = name.lstrip("-")
    start = name[: len(name) - len(bare)]
    return tuple(dict.fromkeys(start + text for text in (bare.replace("_", "-"), bare.replace("-", "_"))))


class SpelledOption(click.Option):
    """An option with main spellings, which are shown, and others, which are accepted.

    Args:
        arguments, settings: Those of ``click.Option``.
        also: Other spellings, listed at the end of the command's help.
        silent: Other spellings, not listed.
    """

    def __init__(self, *arguments: Any, also: Sequence[str] = (), silent: Sequence[str] = (), **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.also = also
        self.accepted = [text for name in (*self.opts, *also, *silent) for text in list_spellings(name)]

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:
        """Have the parser accept all spellings."""
        shown, self.opts = self.opts, self.accepted
        super().add_to_parser(parser, ctx)
        self.opts = shown


class Command(click.Command):
    """A command whose help ends with the other spellings of its options."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, then their other spellings."""
        super().format_options(ctx, formatter)
        options = [parameter for parameter in self.get_params(ctx) if isinstance(parameter, SpelledOption)]
        rows = [(parameter.opts[-1], ", ".join(parameter.also)) for parameter in options if parameter.also]
        names = [
            *(parameter.opts[-1] for parameter in options),
            *(name for parameter in options for name in parameter.also),
        ]
        dashed = next((list_spellings(name) for name in names if len(list_spellings(name)) > 1), None)
        if dashed:
            with formatter.section("Other spellings"):
                if rows:
                    formatter.write_dl(rows)
                formatter.write_text(f"Dashes and underscores within a name are interchangeable: {', '.join(dashed)}.")


option = partial(click.option, cls=SpelledOption)
"""The decorator ``click.option`` for an ``Option``."""
