"""Calls spread over a pool: as they finish or in their order, a bounded number under way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import contextmanager
from typing import Any, TypeVar

from probe_core.errors import UserError
from probe_core.plugins.specs import Pool

T = TypeVar("T")
AHEAD = 2
"""Calls under way for each that a pool takes at a time."""


@contextmanager
def opened(make: Callable[[], Pool]) -> Iterator[Pool]:
    """The pool that ``make`` gives, let go at the end; what has not begun by then is dropped."""
    pool = make()
    try:
        yield pool
    finally:
        pool.executor.shutdown(wait=True, cancel_futures=True)


def as_finished(
    make: Callable[[], Pool], function: Callable[..., T], calls: Sequence[tuple[Any, ...]]
) -> Iterator[tuple[int, T | BaseException]]:
    """The number and the outcome of each call, as they finish; an outcome may be what the call raised.

    A worker that dies (memory ran out, a crash in native code) takes its pool with it. The calls that were
    under way are then made one by one, so that only the one that kills its worker is lost.
    """
    waiting = deque(range(len(calls)))
    alone: deque[int] = deque()
    while waiting or alone:
        with opened(make) as pool:
            if alone:
                number = alone.popleft()
                yield number, _outcome(_submit(pool, function, calls[number]))
                continue
            for number, outcome in _run(pool, function, calls, waiting):
                if isinstance(outcome, BrokenExecutor):
                    alone.append(number)
                else:
                    yield number, outcome


def _run(
    pool: Pool, function: Callable[..., T], calls: Sequence[tuple[Any, ...]], waiting: deque[int]
) -> Iterator[tuple[int, T | BaseException]]:
    """Make the calls that wait, until they are done or the pool is broken.

    When interrupted, give what is under way the time to end, as it was interrupted too.
    """
    under_way: dict[Future[T], int] = {}
    broken = False
    try:
        while under_way or (waiting and not broken):
            while waiting and not broken and len(under_way) < pool.size:
                number = waiting.popleft()
                under_way[_submit(pool, function, calls[number])] = number
            done, _ = wait(under_way, return_when=FIRST_COMPLETED)
            for future in done:
                outcome = _outcome(future)
                broken = broken or isinstance(outcome, BrokenExecutor)
                yield under_way.pop(future), outcome
    except KeyboardInterrupt:
        for future, number in under_way.items():
            if not future.cancel():
                yield number, _outcome(future)
        raise


def _submit(pool: Pool, function: Callable[..., T], call: tuple[Any, ...]) -> Future[T]:
    try:
        return pool.executor.submit(function, *call)
    except BrokenExecutor as error:
        failed: Future[T] = Future()
        failed.set_exception(error)
        return failed


def _outcome(future: Future[Any]) -> Any:
    """What a call came to, once it did.

    Raises:
        UserError: A cluster dropped the call, for it is gone.
    """
    try:
        error = future.exception()
    except CancelledError as cancelled:  # we cancel nothing that we wait for
        error = cancelled
    if isinstance(error, CancelledError):
        raise UserError(
            "The workers are gone: their scheduler ended or cannot be reached any more.",
            "What was finished is kept; start the scheduler again and compare with --resume.",
        ) from None
    return future.result() if error is None else error


def in_order(pool: Pool, function: Callable[..., T], calls: Iterable[tuple[Any, ...]]) -> Iterator[T]:
    """What each call returns, in the order of the calls.

    Raises:
        UserError: The workers died.
        BaseException: What a call raised.
    """
    under_way: deque[Future[T]] = deque()
    try:
        for call in calls:
            under_way.append(_submit(pool, function, call))
            if len(under_way) >= pool.size * AHEAD:
                yield _result(under_way.popleft())
        while under_way:
            yield _result(under_way.popleft())
    finally:
        for future in under_way:
            future.cancel()


def _result(future: Future[T]) -> T:
    outcome: T | BaseException = _outcome(future)
    if isinstance(outcome, BrokenExecutor):
        raise lost(outcome)
    if isinstance(outcome, BaseException):
        raise outcome
    return outcome


def lost(error: BaseException) -> UserError:
    """What to say of a worker that died over a call."""
    why = str(error).splitlines()[0] if str(error) else "no reason given"
    return UserError(
        f"The process that compared it died ({why}).",
        "Memory may have run out: try fewer at a time with --jobs, then --resume.",
    )
