"""The choice of the executor by the options of the command line."""

from __future__ import annotations

import types
from pathlib import Path

from probe_ranks.options import find_scheduled_executor, set_workers
from probe_ranks.specs import ExecutorSpec

from probe_core.model.plan import Plan
from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.manager import Manager
from probe_core.testing import manager_of


def test_scheduler_selects_the_executor_that_has_one() -> None:
    module = types.ModuleType("hooks_of_a_cluster")

    def probe_executors() -> list[ExecutorSpec]:
        return [ExecutorSpec("local", "mine", dict), ExecutorSpec("cluster", "mine", dict, has_scheduler=True)]

    module.probe_executors = hookimpl(probe_executors)  # type: ignore[attr-defined]
    assert find_scheduled_executor(manager_of(mine=module)) == "cluster"


def test_scheduler_names_a_distribution_that_is_not_installed() -> None:
    """The error for the missing executor contains the command that installs it."""
    assert find_scheduled_executor(Manager([])) == "dask"


def test_executor_of_the_plan_is_set_only_if_none_is_named() -> None:
    plan = Plan(Path("t"), Path("g"), Path("o"), "0", options={"executor": None, "scheduler": None, "resume": False})
    assert set_workers(plan, {"resume": True}, frozenset()).options == {**plan.options, "resume": True}
    named = set_workers(plan, {"executor": "threads", "scheduler": "tcp://x:1"}, frozenset())
    assert named.options["executor"] == "threads"
    assert set_workers(plan, {"scheduler": "tcp://x:1"}, frozenset()).options["executor"] == "dask"
