"""Commands that exit with the codes of ``git bisect run``, also where their own command line is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from probe_core import console
from probe_core.errors import UserError
from probe_core.terminal.exit_codes import EXIT_DATA_LOST, EXIT_INTERRUPTED
from probe_core.terminal.spelling import Command, list_spellings
from probe_workflow.comparison import find_kept_answer
from probe_workflow.exit_codes import OUTCOME_CODES, CheckCode

EXIT_CODES_FLAG = "--exit-codes"


class BisectCommand(Command):
    """A command each of whose mistakes and defects has an exit code of at least 128."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line."""
        with exit_with_bisect_codes():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with exit_with_bisect_codes():
            return super().invoke(ctx)


class BisectCompare(Command):
    """The command ``compare``, with the codes of ``git bisect run`` if ``--exit-codes`` asks for them."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Parse the command line."""
        if not _asks_for_bisect_codes(args):
            return super().make_context(info_name, args, parent, **extra)
        with exit_with_bisect_codes():
            ctx = super().make_context(info_name, args, parent, **extra)
            ctx.meta[__name__] = True
            return ctx

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, and translate its exit code."""
        if not ctx.meta.get(__name__):
            return super().invoke(ctx)
        with exit_with_bisect_codes():
            return translate_exit_code(super().invoke(ctx))


def wrap_compare(command: click.Command) -> click.Command:
    """Return the command ``compare`` with the codes of ``git bisect run`` added."""
    return BisectCompare(
        command.name, command.context_settings, command.callback, command.params, command.help, command.epilog
    )


def translate_exit_code(code: int) -> int:
    """Return the code for ``git bisect run`` of a comparison that exits with ``code``."""
    if code == EXIT_INTERRUPTED:
        return CheckCode.INTERRUPTED
    if code == EXIT_DATA_LOST:
        return CheckCode.INCOMPLETE
    answer = find_kept_answer()
    return CheckCode.USER_ERROR if answer is None else OUTCOME_CODES[answer.outcome]


@contextmanager
def exit_with_bisect_codes() -> Iterator[None]:
    """Print an error as ``probe`` does, and exit with a code at which ``git bisect run`` stops."""
    try:
        yield
    except UserError as error:
        console.error(error.what, error.fix, error.choices)
        raise click.exceptions.Exit(CheckCode.USER_ERROR) from None
    except click.Abort:
        raise
    except click.ClickException as error:
        console.show_usage_error(error)
        raise click.exceptions.Exit(CheckCode.USER_ERROR) from None
    except click.exceptions.Exit:
        raise
    except Exception:
        console.show_defect()
        raise click.exceptions.Exit(CheckCode.DEFECT) from None


def _asks_for_bisect_codes(arguments: Sequence[str]) -> bool:
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return any(argument.partition("=")[0] in list_spellings(EXIT_CODES_FLAG) for argument in options)
