"""Contributions of the installed plugins; they are loaded for the task of a plugin, or a comparison with a golden."""

from __future__ import annotations

from functools import cache
from typing import Any

from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import PolicySpec
from probe_recording.specs import CaptureSpec, InterceptorSpec, RecorderSpec, TaskSpec


def load_tasks() -> dict[str, TaskSpec]:
    """Return the tasks that plugins provide, by name."""
    return {spec.name: spec for spec in Manager().specs("tasks", TaskSpec)}


def load_interceptors() -> dict[str, InterceptorSpec]:
    """Return the interceptors of calls that plugins provide, by framework."""
    return {spec.framework: spec for spec in Manager().specs("interceptors", InterceptorSpec)}


def load_captures() -> dict[str, CaptureSpec]:
    """Return the captures of conditions that plugins provide, by framework."""
    return {spec.framework: spec for spec in Manager().specs("condition_captures", CaptureSpec)}


@cache
def load_recorders() -> dict[str, RecorderSpec]:
    """Return the recorders that plugins provide, by framework; plugins are loaded once in a process."""
    return {spec.framework: spec for spec in Manager().specs("recorders", RecorderSpec)}


def load_policy(name: str) -> Any:
    """Return a policy that judges batches of values.

    Raises:
        UserError: No installed plugin provides it.
    """
    return Manager().find("policies", name, PolicySpec).make()
