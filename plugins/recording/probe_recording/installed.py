"""Contributions of the installed plugins; they are loaded for the task of a plugin, or a comparison with a golden."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

from probe_core.plugins.manager import Manager
from probe_core.plugins.specs import PolicySpec
from probe_recording.specs import CaptureSpec, InterceptorSpec, RecorderSpec, TaskSpec

F = TypeVar("F", InterceptorSpec, CaptureSpec, RecorderSpec)


def load_tasks() -> dict[str, TaskSpec]:
    """Return the tasks that plugins provide, by name."""
    return {spec.name: spec for spec in Manager().specs("tasks", TaskSpec)}


@cache
def find_spec(kind: str, spec_type: type[F], framework: str) -> F | None:
    """Return the contribution for a framework, or None if no installed plugin provides it.

    Args:
        kind: The kind of contribution, such as ``recorders``.
        spec_type: The class of its specs.
        framework: The name of the framework.
    """
    specs = Manager().specs(kind, spec_type)
    return next((spec for spec in specs if spec.framework == framework), None)


def load_policy(name: str) -> Any:
    """Return a policy with the method ``judge_batch``.

    Raises:
        UserError: No installed plugin provides the policy.
    """
    return Manager().find("policies", name, PolicySpec).make()
