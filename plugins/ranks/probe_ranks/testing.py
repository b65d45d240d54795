"""Conformance tests for executors, as a class to subclass, and the trial of ``probe plugins --check``."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import ClassVar

from probe_core.errors import UserError
from probe_ranks.specs import Executor, ExecutorSpec, Place, Pool
from probe_ranks.spread import open_pool

CALL_TIMEOUT_SECONDS = 120
"""Time limit of a call in seconds, including the start of its worker."""


class ExecutorConformance:
    """Tests for any executor; set ``spec``, and ``scheduler`` to an address if it needs one."""

    spec: ClassVar[ExecutorSpec]
    scheduler: ClassVar[str | None] = None

    @contextmanager
    def pool(self, jobs: int = 2) -> Iterator[Pool]:
        """Yield a pool of workers, and shut it down at the end."""
        executor: Executor = self.spec.make()
        with open_pool(lambda: executor.open(jobs, self.scheduler)) as pool:
            yield pool

    def test_spec_has_name_and_summary(self) -> None:
        """Check that the spec has a name, a summary, and a valid place."""
        assert self.spec.name and self.spec.summary
        assert isinstance(self.spec.killed, tuple)
        assert isinstance(self.spec.make().place, Place)

    def test_pool_has_the_requested_size(self) -> None:
        """Check the number of workers for one job, and for as many as possible."""
        with self.pool(1) as pool:
            assert pool.size == 1
        with self.pool(0) as pool:
            assert pool.size >= 1

    def test_calls_return_results_and_errors(self) -> None:
        """Check that each call returns its result or raises its exception."""
        with self.pool() as pool:
            calls = [pool.executor.submit(operator.mul, number, 2) for number in range(20)]
            failing = pool.executor.submit(operator.truediv, 1, 0)
            mistaken = pool.executor.submit(_raise_user_error, "what", "fix")
            assert [call.result(CALL_TIMEOUT_SECONDS) for call in calls] == [number * 2 for number in range(20)]
            assert isinstance(failing.exception(CALL_TIMEOUT_SECONDS), ZeroDivisionError)
            error = mistaken.exception(CALL_TIMEOUT_SECONDS)
            assert isinstance(error, UserError) and (error.what, error.fix) == ("what", "fix")

    def test_a_pool_can_be_opened_again(self) -> None:
        """Check that a pool can be opened after another was shut down."""
        for _ in range(2):
            with self.pool() as pool:
                assert pool.executor.submit(operator.add, 1, 2).result(CALL_TIMEOUT_SECONDS) == 3

    def test_unexpected_scheduler_is_refused(self) -> None:
        """Check for an error if a scheduler is missing, or given but not supported."""
        scheduler = None if self.spec.has_scheduler else "tcp://127.0.0.1:1"
        try:
            self.spec.make().open(1, scheduler)
        except UserError:
            return
        raise AssertionError("it was opened")


def _raise_user_error(what: str, fix: str) -> None:
    raise UserError(what, fix)


def check_executor(spec: ExecutorSpec) -> None:
    """Let the workers of an executor make a call, unless it refuses, for example because it needs a scheduler.

    Raises:
        ValueError: The call has another result.
        BaseException: The executor raised it.
    """
    executor: Executor = spec.make()
    with suppress(UserError), open_pool(lambda: executor.open(1, None)) as pool:
        result = pool.executor.submit(operator.mul, 6, 7).result(CALL_TIMEOUT_SECONDS)
        if result != 42 or pool.size < 1:
            raise ValueError(f"its workers returned {result!r:.40} for 6 * 7")
