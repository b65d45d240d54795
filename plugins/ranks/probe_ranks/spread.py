"""Calls distributed over a pool, with a limited number pending at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from probe_core.errors import UserError
from probe_ranks.specs import Pool

T = TypeVar("T")
PENDING_CALLS_PER_WORKER = 2
"""Number of pending calls for each worker."""


@contextmanager
def open_pool(make: Callable[[], Pool]) -> Iterator[Pool]:
    """Yield the pool that ``make`` returns, and shut it down at the end; calls not yet begun are dropped."""
    pool = make()
    try:
        yield pool
    finally:
        pool.executor.shutdown(wait=True, cancel_futures=True)


def iterate_as_finished(
    make: Callable[[], Pool], function: Callable[..., T], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, T | BaseException]]:
    """Yield the number of each call with its result or its exception, in the order in which calls finish.

    A worker that dies (out of memory, a crash in native code) breaks its pool. The pending calls are then
    made one by one, so that only the call that kills its worker is lost.
    """
    waiting = deque(range(len(calls)))
    isolated_calls: deque[int] = deque()
    while waiting or isolated_calls:
        with open_pool(make) as pool:
            if isolated_calls:
                number = isolated_calls.popleft()
                yield number, _await_outcome(_submit(pool, function, calls[number]))
                continue
            for number, outcome in _run_waiting(pool, function, calls, waiting):
                if isinstance(outcome, BrokenExecutor):
                    isolated_calls.append(number)
                else:
                    yield number, outcome


def _run_waiting(
    pool: Pool, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], waiting: deque[int]
) -> Iterator[tuple[int, T | BaseException]]:
    """Make the waiting calls until all are done or the pool breaks; after Ctrl-C, finish the pending ones."""
    pending: dict[Future[T], int] = {}
    broken = False
    try:
        while pending or (waiting and not broken):
            while waiting and not broken and len(pending) < pool.size:
                number = waiting.popleft()
                pending[_submit(pool, function, calls[number])] = number
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = _await_outcome(future)
                broken = broken or isinstance(outcome, BrokenExecutor)
                yield pending.pop(future), outcome
    except KeyboardInterrupt:
        for future, number in pending.items():
            if not future.cancel():
                yield number, _await_outcome(future)
        raise


def _submit(pool: Pool, function: Callable[..., T], call: tuple[Any, ...]) -> Future[T]:
    try:
        return pool.executor.submit(function, *call)
    except BrokenExecutor as error:
        failed: Future[T] = Future()
        failed.set_exception(error)
        return failed


def _await_outcome(future: Future[Any]) -> Any:
    """Wait for a call, and return its result or exception; raise UserError if its cluster is gone."""
    try:
        error = future.exception()
    except CancelledError as cancelled:  # not by us: the cluster dropped it
        error = cancelled
    if isinstance(error, CancelledError):
        raise UserError(
            "The workers are gone: their scheduler ended or cannot be reached any more.",
            "Finished results are kept; start the scheduler again and compare with --resume.",
        ) from None
    return future.result() if error is None else error


def iterate_in_order(pool: Pool, function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """Yield the result of each call, in the order of the calls.

    Raises:
        UserError: The workers died.
        BaseException: A call raised it.
    """
    pending: deque[Future[T]] = deque()
    try:
        for call in calls:
            pending.append(_submit(pool, function, call))
            if len(pending) >= pool.size * PENDING_CALLS_PER_WORKER:
                yield _await_result(pending.popleft())
        while pending:
            yield _await_result(pending.popleft())
    finally:
        for future in pending:
            future.cancel()


def _await_result(future: Future[T]) -> T:
    outcome: T | BaseException = _await_outcome(future)
    if isinstance(outcome, BrokenExecutor):
        raise create_lost_error(outcome)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def create_lost_error(error: BaseException) -> UserError:
    """Return the error for a call whose worker died."""
    reason = str(error).splitlines()[0] if str(error) else "no reason given"
    return UserError(
        f"The process that compared it died ({reason}).",
        "Memory may have run out: compare again with --resume and fewer --jobs.",
    )
