"""The shell of ``probe parse``: its sub-commands, with history and completion (docs/legacy.md#probe-parse).

With prompt_toolkit there are both; without, the lines are read plainly. Nothing but the sub-commands is run.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe_core import console
from probe_core.cli.main import run
from probe_core.errors import make_printable
from probe_core.terminal.exit_codes import EXIT_FINISHED

if TYPE_CHECKING:
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

PROMPT = "Parse >>> "
ENDS = ("exit", "quit")
HELP_COMMANDS = ("help", "?")
INSTALL_COMMAND = "pip install prompt_toolkit"


def run_shell(group: click.Group, framework: str | None) -> int:
    """Run the commands that a user types, until the input ends.

    Args:
        group: The group whose sub-commands are run.
        framework: The framework of the runs; None to detect it.
    """
    ask = create_reader(group)
    before = ["-f", framework] if framework else []
    console.show(f"Commands: {', '.join(group.commands)}, help. Ctrl-D or exit ends.")
    for line in _iterate_lines(ask):
        try:
            words = shlex.split(line)
        except ValueError as error:
            console.error(f"The line cannot be split into words: {error}.", "Close the quotation.")
            continue
        if not words:
            continue
        if words[0] in ENDS:
            break
        if words[0] in HELP_COMMANDS:
            words = [*words[1:2], "--help"]
        elif words[0] not in group.commands:
            console.error(
                f'"{make_printable(words[0], 60)}" is no command here, and no other program is run.',
                "Use one of these, or exit:",
                list(group.commands),
            )
            continue
        run([*before, "parse", *words])
    return EXIT_FINISHED


def _iterate_lines(ask: Callable[[], str]) -> Iterator[str]:
    """Yield what is typed; an interrupted line is dropped, and the end of the input ends it."""
    while True:
        try:
            yield ask()
        except KeyboardInterrupt:
            console.show()
        except EOFError:
            console.show()
            return


def create_reader(group: click.Group) -> Callable[[], str]:
    """Return a function that reads a line: with history and completion if prompt_toolkit is installed."""
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        with suppress(ImportError):
            import readline  # noqa: F401 - lets input() edit its line

        console.note(f"For history and completion: {INSTALL_COMMAND}")
        return lambda: input(PROMPT)
    session: PromptSession[str] = PromptSession(
        history=_open_history(), completer=create_completer(group), complete_while_typing=False
    )
    return lambda: session.prompt(PROMPT)


def _open_history() -> History:
    """Return the history of earlier shells, or an empty one if it cannot be kept."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    try:
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "probe"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = home / "parse_history"
        path.touch(mode=0o600)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return InMemoryHistory()
    return FileHistory(str(path))


def create_completer(group: click.Group) -> Completer:
    """Return what completes commands, options, values and paths, as click completes them in a terminal."""
    from click.shell_completion import ShellComplete
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    paths = PathCompleter(expanduser=False)

    class Words(Completer):
        """Completions of the last word of a line."""

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterator[Completion]:
            line = document.text_before_cursor
            words = line.split()
            last = words.pop() if words and not line[-1].isspace() else ""
            if not words:
                names = [*group.commands, "help", "exit"]
                yield from (Completion(name, -len(last)) for name in names if name.startswith(last))
                return
            shell = ShellComplete(group, {}, "parse", "")
            items: list[Any] = shell.get_completions(words, last) if words[0] in group.commands else []
            for item in items:
                if item.type in ("file", "dir"):
                    yield from paths.get_completions(Document(last), event)
                else:
                    yield Completion(item.value, -len(last), display_meta=item.help or "")

    return Words()
