"""The command ``probe parse``: one dump, a sub-command, or with no arguments on a terminal a shell."""

from __future__ import annotations

import sys
from typing import Any

import click

from probe_legacy.parse import commands
from probe_legacy.parse_command import parse as rows


class Parse(click.Group):
    """A group that shows the rows of a file if its first argument is no sub-command."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return the context of the group, of the rows of a file, or of the shell."""
        if not extra.get("resilient_parsing"):  # else a shell asks for completions
            if not args and sys.stdin.isatty() and sys.stdout.isatty():
                return shell.make_context(info_name, args, parent, **extra)
            if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
                return rows.make_context(info_name, args, parent, **extra)
        return super().make_context(info_name, args, parent, **extra)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the forms of the command line."""
        return ["[FILE [-n PREFIX] | COMMAND [ARGS]...]"]

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete sub-commands, options and files."""
        from click.shell_completion import CompletionItem

        return [*super().shell_complete(ctx, incomplete), CompletionItem(incomplete, type="file")]


@click.command()
@click.pass_context
def shell(ctx: click.Context) -> int:
    """Run the shell."""
    from probe_legacy.parse.shell import run_shell

    return run_shell(parse, ctx.meta.get("probe.framework"))


@click.group(cls=Parse, commands=commands.ALL)
def parse() -> None:
    """Print rows of a dump, or run a command of the old parse tool.

    With a FILE, print statistics and call stacks of its rows: a .pkl of ptdbg_ascend or torch_npu.hooks, or a
    dump.json. -n PREFIX leaves the rows whose names begin with PREFIX.

    Without arguments on a terminal, start a shell for the commands below, with history and completion. An
    empty line does nothing; Ctrl-D or exit ends it. It runs no other program.

    \b
    probe parse dump.pkl -n Torch_relu_1_forward
    probe parse dump.json -n Torch.relu.1.forward
    probe parse pt -n Torch_relu_1_forward_output.npy
    """
