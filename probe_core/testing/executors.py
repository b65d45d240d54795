"""What every executor must do, as a class of tests to subclass."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from probe_core.errors import UserError
from probe_core.plugins.protocols import Executor
from probe_core.plugins.specs import ExecutorSpec, Place, Pool

PATIENCE = 120
"""Seconds that a call may take, with the start of its worker."""


class ExecutorConformance:
    """Tests that any executor passes; set ``spec``, and ``scheduler`` to an address where it needs one."""

    spec: ClassVar[ExecutorSpec]
    scheduler: ClassVar[str | None] = None

    @contextmanager
    def pool(self, jobs: int = 2) -> Iterator[Pool]:
        """Workers, let go at the end."""
        executor: Executor = self.spec.make()
        pool = executor.open(jobs, self.scheduler)
        try:
            yield pool
        finally:
            pool.executor.shutdown(wait=True, cancel_futures=True)

    def test_spec_names_it(self) -> None:
        """A name, a summary, and a place that is one."""
        assert self.spec.name and self.spec.summary
        assert isinstance(self.spec.killed, tuple)
        assert isinstance(self.spec.make().place, Place)

    def test_as_many_workers_as_asked_for(self) -> None:
        """No more calls at a time than were asked for; with 0 as many as there are."""
        with self.pool(1) as pool:
            assert pool.size == 1
        with self.pool(0) as pool:
            assert pool.size >= 1

    def test_calls_come_back(self) -> None:
        """Each call gives its own result, and what it raises is raised where the result is asked for."""
        with self.pool() as pool:
            calls = [pool.executor.submit(operator.mul, number, 2) for number in range(20)]
            failing = pool.executor.submit(operator.truediv, 1, 0)
            mistaken = pool.executor.submit(_mistake, "what", "fix")
            assert [call.result(PATIENCE) for call in calls] == [number * 2 for number in range(20)]
            assert isinstance(failing.exception(PATIENCE), ZeroDivisionError)
            error = mistaken.exception(PATIENCE)
            assert isinstance(error, UserError) and (error.what, error.fix) == ("what", "fix")

    def test_a_pool_can_be_opened_again(self) -> None:
        """Workers that were let go do not keep others from being opened."""
        for _ in range(2):
            with self.pool() as pool:
                assert pool.executor.submit(operator.add, 1, 2).result(PATIENCE) == 3

    def test_a_scheduler_that_is_not_meant_is_refused(self) -> None:
        """An executor without scheduler refuses the address of one, and one that has one needs it."""
        unmeant = None if self.spec.has_scheduler else "tcp://127.0.0.1:1"
        try:
            self.spec.make().open(1, unmeant)
        except UserError:
            return
        raise AssertionError("it was opened")


def _mistake(what: str, fix: str) -> None:
    raise UserError(what, fix)
