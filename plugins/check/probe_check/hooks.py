"""Hooks of probe-check: its commands."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands."""
    return [
        CommandSpec(
            "config-check",
            "Compare the configurations of two trainings.",
            "probe_check.config_check.command:config_check",
        ),
    ]
