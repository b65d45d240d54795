"""The kit for executors: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from probe_ranks.hooks import probe_executors
from probe_ranks.specs import (
    ExecutorSpec,
    Place,
    Pool,
)
from probe_ranks.testing import ExecutorConformance
from support.conformance import failing

from probe_core.errors import UserError

# -- executors -------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", probe_executors(), ids=lambda spec: spec.name)
def test_the_executors_pass(spec: ExecutorSpec, tmp_path: Path) -> None:
    assert failing(ExecutorConformance, tmp_path, spec=spec) == set()


class Here:
    """Threads, like those of the core."""

    place: Any = Place.HERE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        if scheduler is not None:
            raise UserError("No scheduler.", "Leave it out.")
        return Pool(ThreadPoolExecutor(jobs or 2), jobs or 2)


class Careless(Here):
    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, None)


class Placeless(Here):
    place = "here"


class Greedy(Here):
    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(8, scheduler)


class Silent(Here):
    class Pool(ThreadPoolExecutor):
        def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            def call() -> Any:
                try:
                    return function(*args, **kwargs)
                except Exception:
                    return None

            return super().submit(call)

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, scheduler)._replace(executor=Silent.Pool(2))


class Shared(Here):
    executor = ThreadPoolExecutor(2)

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        return super().open(jobs, scheduler)._replace(executor=self.executor)


@pytest.mark.parametrize(
    "executor, faults",
    [
        (Here, set()),
        (Careless, {"unexpected_scheduler_is_refused"}),
        (Placeless, {"spec_has_name_and_summary"}),
        (Greedy, {"pool_has_the_requested_size"}),
        (Silent, {"calls_return_results_and_errors"}),
        (Shared, {"a_pool_can_be_opened_again", "calls_return_results_and_errors"}),
    ],
)
def test_a_fault_of_an_executor_is_found(executor: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(ExecutorConformance, tmp_path, spec=ExecutorSpec("mine", "mine", executor)) == faults
