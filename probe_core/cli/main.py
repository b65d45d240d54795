"""The group of commands, and what becomes of errors.

Exit codes: 0 finished; 1 ``--fail-on`` found what it asks for; 2 the input is at fault, or a plugin that was
asked for; 3 finished, but something was lost: a call that took its process with it, or a plugin's file; 70 a
defect of probe; 130 interrupted.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any, TextIO

import click

from probe_core import __version__
from probe_core.cli import console
from probe_core.cli.extending import extended
from probe_core.errors import UserError, said
from probe_core.plugins.blame import blamed, what_to_do
from probe_core.plugins.distributions import provider
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.specs import CommandSpec

FINISHED, FOUND, MISTAKE, LOST, DEFECT, INTERRUPTED = 0, 1, 2, 3, 70, 130
ISSUES = "the project's issue tracker"


class Commands(click.Group):
    """The commands of all plugins; one is imported when it is called, and none for a listing."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the help."""
        return sorted(_manager(ctx).names("commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command itself."""
        manager = _manager(ctx)
        if cmd_name not in manager.names("commands"):
            if provider("commands", cmd_name) is not None:
                raise manager.missing("commands", cmd_name)
            return None
        spec = manager.find("commands", cmd_name, CommandSpec)
        command: object = spec.make()
        if not isinstance(command, click.Command):
            with blamed(spec.title, spec.origin):
                raise TypeError(f"{spec.factory} is no click command")
        return extended(cmd_name, command, manager)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; a pipe that breaks is a defect, unless it is the one that we print to."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if console.is_of_output(error):
                return FINISHED
            raise RuntimeError("a pipe to another process broke") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """A line each, from the specs alone."""
        lines = {item.spec.name: item.spec.summary for item in _manager(ctx).contributions("commands")}
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))


def _manager(ctx: click.Context) -> Manager:
    manager = ctx.find_object(Manager)
    if manager is None:
        manager = ctx.obj = Manager()
    return manager


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-f", "--framework", help="Framework of the runs; found out when left out.")
@click.version_option(__version__, prog_name="probe")
@click.pass_context
def cli(ctx: click.Context, framework: str | None) -> None:
    """Find the operator that went wrong first between two runs of a model."""
    ctx.meta["probe.framework"] = framework


def main(arguments: list[str] | None = None) -> None:
    """Run ``probe`` and end the process with its exit code."""
    code = run(arguments)
    console.close_broken_pipes()
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run ``probe`` with ``arguments``; the exit code."""
    console.prepare()
    streams = sys.stdout, sys.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = _show_warning
        manager: Manager | None = None
        try:
            manager = Manager()
            code: Any = cli.main(arguments, prog_name="probe", standalone_mode=False, obj=manager)
            return code if isinstance(code, int) else FINISHED
        except UserError as error:
            console.error(error.what, error.fix, error.choices)
            return MISTAKE
        except click.exceptions.NoArgsIsHelpError as error:
            console.note(error.format_message(), lines=True)
            return MISTAKE
        except click.ClickException as error:
            console.usage(error)
            return MISTAKE
        except click.exceptions.Exit as stop:
            return int(stop.exit_code)
        except (click.Abort, KeyboardInterrupt):
            console.note("Interrupted; finished files are kept.")
            return INTERRUPTED
        except SystemExit:
            if sys.stdout is streams[0]:
                raise
            sys.stdout, sys.stderr = streams  # nobody read the help; click would have us exit with 1
            return FINISHED
        except Exception as error:
            plugin = None if manager is None else manager.culprit(error.__traceback__)
            if plugin is None:
                console.defect(ISSUES)
                return DEFECT
            console.note(traceback.format_exc().rstrip(), lines=True)
            console.error(
                f"{plugin.origin}, a plugin, failed: {said(error)}.", what_to_do(plugin.distribution)
            )
            return MISTAKE


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of probe's as the command line words them, one of others as Python does."""
    if category.__module__.startswith("probe_"):
        console.warn(str(message))
    else:
        shown = warnings.formatwarning(message, category, filename, lineno, line)
        console.note(shown.rstrip("\n"), lines=True)
