"""Hooks of probe-watch: its tasks and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec

if TYPE_CHECKING:
    from probe_recording import TaskSpec


@hookimpl
def probe_tasks() -> list[TaskSpec]:
    """Return the tasks of the debugger."""
    return []


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands."""
    return [
        CommandSpec(
            "nan-analyze",
            "Find the first nan or infinity of a run, over all its ranks.",
            "probe_watch.nan_analysis.command:nan_analyze",
            aliases=("overflow-check",),
        )
    ]
