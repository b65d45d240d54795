"""The choice of the executor by the options of the command line."""

from __future__ import annotations

import types
from typing import Any

import pytest
from probe_ranks.scheduler import find_executor_name
from probe_ranks.specs import ExecutorSpec

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.testing import manager_of


def create_manager() -> Manager:
    module = types.ModuleType("hooks_of_a_cluster")

    def probe_executors() -> list[ExecutorSpec]:
        return [ExecutorSpec("local", "mine", dict), ExecutorSpec("cluster", "mine", dict, has_scheduler=True)]

    module.probe_executors = hookimpl(probe_executors)  # type: ignore[attr-defined]
    return manager_of(mine=module)


@pytest.mark.parametrize(
    ("executor", "scheduler", "expected"),
    [(None, None, None), ("local", None, "local"), (None, "tcp://x:1", "cluster"), ("local", "tcp://x:1", "local")],
)
def test_scheduler_selects_the_executor_that_has_one(executor: Any, scheduler: Any, expected: str | None) -> None:
    assert find_executor_name({"executor": executor, "scheduler": scheduler}, create_manager()) == expected


def test_scheduler_names_a_distribution_that_is_not_installed() -> None:
    """The error for the missing executor contains the command that installs it."""
    assert find_executor_name({"executor": None, "scheduler": "tcp://x:1"}, Manager([])) == "dask"
