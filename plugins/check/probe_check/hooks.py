"""Hooks of probe-check: its commands, and the option ``--check`` of ``probe plugins``."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec, Option, OptionSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands."""
    return [
        CommandSpec(
            "config-check",
            "Compare the configurations of two trainings.",
            "probe_check.config_check.command:config_check",
        ),
        CommandSpec(
            "checkpoint",
            "Compare the tensors of two checkpoints.",
            "probe_check.checkpoint.command:checkpoint",
        ),
        CommandSpec(
            "monitor",
            "Name the first value that left its usual range in a monitored training, and draw its curves.",
            "probe_check.monitor.command:monitor",
        ),
        CommandSpec(
            "monitor-alerts",
            "Sort the alerts of all ranks of a monitored training.",
            "probe_check.monitor.command:monitor_alerts",
            aliases=("anomaly-processor",),
        ),
    ]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the option of ``probe plugins`` that tries all contributions."""
    help_text = "Try every contribution on a small pair of runs; exit with 2 if one fails."
    return [
        OptionSpec(
            "plugin_check",
            "tries every contribution on a small pair of runs",
            "probe_check.plugin_check.output:print_check",
            command="plugins",
            options=(Option("check", ("--check",), help_text),),
        )
    ]
