"""``probe completion``: the script that lets a shell complete the command line."""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from probe_core import console
from probe_core.cli.main import cli
from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, write_text
from probe_core.terminal.exit_codes import EXIT_FINISHED
from probe_core.terminal.spelling import Command, option

SHELL_FILES = {
    "bash": (".local/share/bash-completion/completions/probe", "Open a new shell."),
    "zsh": (".zfunc/_probe", "Add to ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
    "fish": (".config/fish/completions/probe.fish", "Open a new shell."),
}
"""For each shell the file in the home directory that it reads, and what is left to do."""
COMPLETION_VARIABLE = "_PROBE_COMPLETE"


@click.command(cls=Command)
@click.argument("shell", required=False, type=click.Choice(list(SHELL_FILES)))
@option("--install", is_flag=True, help="Write the script to the file that the shell reads.")
def completion(shell: str | None, install: bool) -> int:
    """Print the script that completes commands and options in a shell, by default that of $SHELL.

    \b
    probe completion --install
    eval "$(probe completion bash)"
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELL_FILES else None
    if kind is None:
        raise UserError(f'There is no completion for "{shell}".', "Name your shell:", list(SHELL_FILES))
    script = kind(cli, {}, "probe", COMPLETION_VARIABLE).source().strip()
    if not install:
        console.show(script, lines=True)
        return EXIT_FINISHED
    place, rest = SHELL_FILES[shell]
    path = Path.home() / place
    if path.exists() and COMPLETION_VARIABLE not in path.read_text("utf-8", "replace"):
        raise UserError(f"{path} exists, and probe did not write it.", "Move it away, then try again.")
    make_directory(path.parent)
    write_text(path, f"{script}\n")
    console.show(f"wrote {path}")
    console.show(f"  {rest}")
    return EXIT_FINISHED
