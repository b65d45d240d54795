"""Hooks of probe-check: its commands."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands."""
    return [
        CommandSpec(
            "checkpoint",
            "Compare the tensors of two checkpoints.",
            "probe_check.checkpoint.command:checkpoint",
        ),
    ]
