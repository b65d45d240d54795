"""The program ``probe``: the group of commands, and the handling of their errors."""

from __future__ import annotations

import sys
import traceback
import warnings
from typing import Any

import click

from probe_core import __version__, console
from probe_core.errors import UserError, describe_error
from probe_core.files.packaged import load_yaml
from probe_core.plugins.blame import blame_plugin, describe_fix
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.specs import CommandSpec
from probe_core.terminal.exit_codes import EXIT_DEFECT, EXIT_FINISHED, EXIT_INTERRUPTED, EXIT_USER_ERROR
from probe_core.terminal.plugin_options import add_plugin_options
from probe_core.terminal.spelling import list_spellings


class CommandGroup(click.Group):
    """The commands of all plugins. A command is imported only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the main names, in the order of the help."""
        return sorted(_get_manager(ctx).names("commands"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with a name, which may be an alias, or raise UserError."""
        manager = _get_manager(ctx)
        name = _map_names(manager).get(cmd_name)
        if name is None:
            if ctx.resilient_parsing:  # a shell asks for completions
                return None
            raise load_unsupported_commands().get(cmd_name.replace("-", "_")) or manager.create_missing_error(
                "commands", cmd_name
            )
        spec = manager.find("commands", name, CommandSpec)
        command: object = spec.make()
        if not isinstance(command, click.Command):
            with blame_plugin(spec.title, spec.origin):
                raise TypeError(f"{spec.factory} is no click command")
        return add_plugin_options(name, command, manager)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Complete main names, from the specs alone, and options."""
        from click.shell_completion import CompletionItem

        specs = {item.spec.name: item.spec for item in _get_manager(ctx).contributions("commands")}
        names = [name for name in sorted(specs) if name.startswith(incomplete)]
        completions = [CompletionItem(name, help=specs[name].summary) for name in names]
        return [*completions, *click.Command.shell_complete(self, ctx, incomplete)]

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command. A broken pipe of the output ends it quietly; any other broken pipe is a defect."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            if console.is_output_pipe(error):
                return EXIT_FINISHED
            raise RuntimeError("a pipe to another process broke") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, from the specs alone."""
        names = _map_names(_get_manager(ctx))
        lines = {}
        for item in _get_manager(ctx).contributions("commands"):
            also = ", ".join(name for name, main in names.items() if main == item.spec.name and name != main)
            lines[item.spec.name] = f"{item.spec.summary} Also: {also}." if also else item.spec.summary
        with formatter.section("Commands"):
            formatter.write_dl(sorted(lines.items()))


def load_unsupported_commands() -> dict[str, UserError]:
    """Return the error for each command of another tool that probe does not have, by its name."""
    entries = load_yaml(__package__, "refused_commands.yaml").items()
    return {name: UserError(text["refusal"], text["instead"]) for name, text in entries}


def _map_names(manager: Manager) -> dict[str, str]:
    """Return the main name for each name of a command."""
    main_names = {name: name for name in manager.names("commands")}
    for item in manager.contributions("commands"):
        for name in (item.spec.name, *getattr(item.spec, "aliases", ())):
            for text in list_spellings(name):
                main_names.setdefault(text, item.spec.name)
    return main_names


def _get_manager(ctx: click.Context) -> Manager:
    manager = ctx.find_object(Manager)
    if manager is None:
        manager = ctx.obj = Manager()
    return manager


@click.command(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-f", "--framework", help="Framework of the runs; detected if not given.")
@click.version_option(__version__, prog_name="probe")
@click.pass_context
def cli(ctx: click.Context, framework: str | None) -> None:
    """Find the operator that diverged first between two runs of a model. To see it at work: probe demo."""
    ctx.meta["probe.framework"] = framework


def main(arguments: list[str] | None = None) -> None:
    """Run ``probe`` and end the process with its exit code."""
    code = run(arguments)
    console.close_broken_pipes()
    sys.exit(code)


def run(arguments: list[str] | None = None) -> int:
    """Run ``probe`` with ``arguments`` and return its exit code."""
    console.prepare()
    streams = sys.stdout, sys.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("always", PluginWarning)
        warnings.showwarning = _show_warning
        manager: Manager | None = None
        try:
            manager = Manager()
            code: Any = cli.main(arguments, prog_name="probe", standalone_mode=False, obj=manager)
            return code if isinstance(code, int) else EXIT_FINISHED
        except UserError as error:
            console.error(error.what, error.fix, error.choices)
            return EXIT_USER_ERROR
        except click.ClickException as error:
            _report_usage_error(error, manager, sys.argv[1:] if arguments is None else arguments)
            return EXIT_USER_ERROR
        except click.exceptions.Exit as stop:
            return int(stop.exit_code)
        except (click.Abort, KeyboardInterrupt):
            console.note("Interrupted; finished files are kept.")
            return EXIT_INTERRUPTED
        except SystemExit:
            if sys.stdout is streams[0]:
                raise
            sys.stdout, sys.stderr = streams  # the reader of the help closed the pipe; click exits with 1 then
            return EXIT_FINISHED
        except Exception as error:
            return _report_exception(error, manager)


def _report_usage_error(error: click.ClickException, manager: Manager | None, words: list[str]) -> None:
    """Print an error of the command line whose words are ``words``."""
    if type(error).__name__ == "NoArgsIsHelpError":  # which click before 8.2 lacks
        console.note(error.format_message(), lines=True)
    elif absent := _find_missing_option(manager, error, words):
        console.error(absent.what, absent.fix)
    else:
        console.show_usage_error(error)


def _report_exception(error: Exception, manager: Manager | None) -> int:
    """Print an unexpected error, and return the exit code: of a third-party plugin, or of a defect."""
    plugin = None if manager is None else manager.find_failing_plugin(error.__traceback__)
    if plugin is None:
        console.show_defect()
        return EXIT_DEFECT
    console.note(traceback.format_exc().rstrip(), lines=True)
    console.error(f"{plugin.origin}, a plugin, failed: {describe_error(error)}.", describe_fix(plugin.distribution))
    return EXIT_USER_ERROR


def _find_missing_option(manager: Manager | None, problem: click.ClickException, words: list[str]) -> UserError | None:
    """Return the error for an unknown option on a command line if a plugin that is not installed provides it."""
    if manager is None or not isinstance(problem, click.NoSuchOption) or problem.ctx is None:
        return None
    command = problem.ctx.command
    spellings = {text for parameter in command.params for text in getattr(parameter, "accepted", parameter.opts)}
    names = (word.partition("=")[0] for word in words if word.startswith("-"))
    errors = (manager.create_missing_option_error(str(command.name), name) for name in names if name not in spellings)
    return next(filter(None, errors), None)


def _show_warning(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, *_: Any, **__: Any
) -> None:
    """Print a warning of probe in the style of the command line, any other as Python does."""
    if category.__module__.startswith("probe_"):
        console.warn(str(message))
    else:
        console.note(warnings.formatwarning(message, category, filename, lineno).rstrip("\n"), lines=True)
