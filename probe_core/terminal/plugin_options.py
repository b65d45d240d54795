"""Options that plugins add to commands."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import Option, OptionSpec, import_address
from probe_core.terminal.option_types import Location, NumberRanges
from probe_core.terminal.spelling import SpelledOption

NO_VALUE = Path()
"""The value of an option that is given without one."""
_VALUES_KEY = "probe.given"
"""The key under which a context keeps the given options: spec name to values by the option's name."""


def add_plugin_options(name: str, command: click.Command, manager: Manager) -> click.Command:
    """Return a copy of a command with the options of plugins, which may wrap the command."""
    command = copy.copy(command)
    for spec in manager.specs("options", OptionSpec):
        if spec.command.replace("_", "-") == name.replace("_", "-"):
            with blame_plugin(spec.title, spec.origin):
                command.params = [*command.params, *(_create_parameter(spec, option) for option in spec.options)]
                command = import_address(spec.wrapper)(command) if spec.wrapper else command
    return command


def collect_option_actions(ctx: click.Context, manager: Manager) -> list[tuple[Any, Mapping[str, Any]]]:
    """Return the function of each group of plugin options that the command line uses, in order, with their values.

    Raises:
        UserError: An option was given without one that it needs.
    """
    values: Mapping[str, Mapping[str, Any]] = ctx.meta.get(_VALUES_KEY, {})
    names = dict.fromkeys(spec.name for spec in manager.specs("options", OptionSpec) if spec.name in values)
    return [(manager.find("options", name, OptionSpec).action(values[name]), values[name]) for name in names]


def find_set_parameters(ctx: click.Context) -> frozenset[str]:
    """Return the names of a command's own parameters that the command line sets."""
    return frozenset(name for name in ctx.params if ctx.get_parameter_source(name) is not ParameterSource.DEFAULT)


def _create_parameter(spec: OptionSpec, option: Option) -> click.Parameter:

    text: Any = click.Choice(option.choices) if option.choices else str
    settings: dict[str, Any] = {"is_flag": False, "flag_value": NO_VALUE} if option.value_optional else {}

    def store_value(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
        value = True if option.value_optional and value == NO_VALUE else value
        if value not in (None, False):
            ctx.meta.setdefault(_VALUES_KEY, {}).setdefault(spec.name, {})[option.name] = value

    return SpelledOption(
        (*option.flags, f"{spec.name}_{option.name}"),
        **settings or {"is_flag": option.kind == "flag"},
        type={"flag": None, "numbers": NumberRanges(), "run": Location(), "file": click.Path(path_type=Path)}.get(
            option.kind, text
        ),
        also=option.also,
        metavar=option.metavar or None,
        help=option.help,
        expose_value=False,
        callback=store_value,
    )
