"""Hooks of probe-watch: its tasks and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec

if TYPE_CHECKING:
    from probe_recording.api import TaskSpec


@hookimpl
def probe_tasks() -> list[TaskSpec]:
    """Return the tasks of the debugger."""
    from probe_recording.api import TaskSpec

    from probe_watch.free_benchmark.settings import FIELDS

    return [
        TaskSpec(
            "grad_probe",
            "Writes statistics and signs of gradients before each step of an optimizer.",
            "probe_watch.grad_probe.task:new_recorder",
            frameworks=("pytorch", "mindspore"),
            fields=("grad_level", "param_list", "bounds", "direction_files"),
            settings="probe_watch.grad_probe.settings:parse",
        ),
        TaskSpec(
            "free_benchmark",
            "repeats each call with a small change and reports those whose results react strongly",
            "probe_watch.free_benchmark.task:FreeBenchmark",
            frameworks=("pytorch", "mindspore"),
            fields=FIELDS,
            settings="probe_watch.free_benchmark.settings:parse",
        ),
    ]


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands."""
    return [
        CommandSpec(
            "grad",
            "Compare the gradients of two runs that the task grad_probe wrote.",
            "probe_watch.grad_probe.command:grad",
        ),
        CommandSpec(
            "nan-analyze",
            "Find the first nan or infinity of a run, over all its ranks.",
            "probe_watch.nan_analysis.command:nan_analyze",
            aliases=("overflow-check",),
        ),
    ]
