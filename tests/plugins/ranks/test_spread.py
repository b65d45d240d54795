"""Calls spread over a pool: each is made once, in the order that was promised, and what it raised is delivered."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_ranks.executors import ProcessExecutor, ThreadExecutor
from probe_ranks.specs import Pool
from probe_ranks.spread import (
    PENDING_CALLS_PER_WORKER,
    create_lost_error,
    iterate_as_finished,
    iterate_in_order,
    open_pool,
)
from support.measuring import PROPERTY
from support.sampling import examples

from probe_core.errors import UserError

QUICK = settings(PROPERTY, max_examples=examples(40))
RETURN, RAISE, KILL = "return", "raise", "kill"
Call = tuple[str, int]


class Boom(Exception):
    """Return the error that a call raises."""


class Workers(Executor):
    """Threads of which a call may break the pool, as a process that dies breaks its own."""

    def __init__(self, size: int) -> None:
        self._threads = ThreadPoolExecutor(size)
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()
        self._broken = False
        self.most = 0
        self.is_open = True

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        with self._lock:
            if self._broken:
                raise BrokenExecutor("gone")
            future: Future[Any] = Future()
            self._under_way.add(future)
            self.most = max(self.most, len(self._under_way))
            self._threads.submit(self._make, future, function, arguments)
        return future

    def _make(self, future: Future[Any], function: Callable[..., Any], arguments: Any) -> None:
        with self._lock:
            if self._broken or not future.set_running_or_notify_cancel():
                return
        try:
            value = function(*arguments)
        except SystemExit:
            self._die()
        except BaseException as error:
            self._end(future, error=error)
        else:
            self._end(future, value)

    def _end(self, future: Future[Any], value: Any = None, error: BaseException | None = None) -> None:
        with self._lock:
            if future in self._under_way:
                self._under_way.discard(future)
                future.set_result(value) if error is None else future.set_exception(error)

    def _die(self) -> None:
        with self._lock:
            self._broken = True
            under_way, self._under_way = self._under_way, set()
        for future in under_way:
            future.set_exception(BrokenExecutor("a process died"))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self.is_open = False
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)


def act(what: str, pause: int, number: int) -> int:
    """A call that waits for ``pause`` tenths of a millisecond, and then does as it is told."""
    time.sleep(pause / 10_000)
    if what == RAISE:
        raise Boom(number)
    if what == KILL:
        raise SystemExit
    return number * number


def numbered(calls: list[Call]) -> list[tuple[str, int, int]]:
    return [(*call, number) for number, call in enumerate(calls)]


class Made:
    """Makes pools, and remembers them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pools: list[Workers] = []

    def __call__(self) -> Pool:
        self.pools.append(Workers(self.size))
        return Pool(self.pools[-1], self.size)


CALLS = st.lists(st.tuples(st.sampled_from([RETURN, RETURN, RETURN, RAISE]), st.integers(0, 10)), max_size=12)
DEADLY = st.lists(st.tuples(st.sampled_from([RETURN, RETURN, RAISE, KILL]), st.integers(0, 10)), max_size=12)


# -- as they finish --------------------------------------------------------------------------------


@QUICK
@given(DEADLY, st.integers(1, 5))
def test_every_call_is_made_and_only_the_deadly_ones_are_lost(calls: list[Call], size: int) -> None:
    make = Made(size)
    found = list(iterate_as_finished(make, act, numbered(calls)))
    assert sorted(number for number, _ in found) == list(range(len(calls)))
    for number, outcome in found:
        what = calls[number][0]
        if what == RETURN:
            assert outcome == number * number
        elif what == RAISE:
            assert isinstance(outcome, Boom) and outcome.args == (number,)
        else:
            assert isinstance(outcome, BrokenExecutor)
    assert all(pool.most <= size and not pool.is_open for pool in make.pools)


@QUICK
@given(CALLS, st.integers(1, 5))
def test_nothing_is_made_twice_while_no_worker_dies(calls: list[Call], size: int) -> None:
    make, begun = Made(size), []

    def note(what: str, pause: int, number: int) -> int:
        begun.append(number)
        return act(what, pause, number)

    list(iterate_as_finished(make, note, numbered(calls)))
    assert sorted(begun) == list(range(len(calls)))
    assert len(make.pools) <= 1


def test_one_thing_at_a_time_is_in_order() -> None:
    found = iterate_as_finished(Made(1), act, numbered([(RETURN, 0)] * 20))
    assert [number for number, _ in found] == list(range(20))


def test_what_finishes_first_comes_first() -> None:
    held, second = threading.Event(), 1

    def wait(number: int) -> int:
        if number != second:
            held.wait(10)
        return number

    found = iterate_as_finished(lambda: ThreadExecutor().open(2, None), wait, [(0,), (second,), (2,)])
    assert next(found) == (second, second)
    held.set()
    assert sorted(found) == [(0, 0), (2, 2)]


def test_who_stops_listening_lets_the_pool_go() -> None:
    make = Made(2)
    found = iterate_as_finished(make, act, numbered([(RETURN, 0)] * 50))
    next(found)
    found.close()
    assert not make.pools[0].is_open


def test_an_interruption_waits_for_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that had begun is given before the interruption goes on; other work is dropped."""
    held, begun = threading.Event(), []

    def work(number: int) -> int:
        begun.append(number)
        if number:
            held.wait(10)
        return number

    waits = iter([False, True])

    def interrupted(futures: Any, return_when: str) -> Any:
        from concurrent.futures import wait

        if next(waits):
            until = time.monotonic() + 10
            while len(begun) < 3 and time.monotonic() < until:
                time.sleep(0.001)
            threading.Timer(0.05, held.set).start()
            raise KeyboardInterrupt
        return wait(futures, return_when=return_when)

    monkeypatch.setattr("probe_ranks.spread.wait", interrupted)
    given_out = []
    with pytest.raises(KeyboardInterrupt):
        for number, _ in iterate_as_finished(lambda: ThreadExecutor().open(2, None), work, [(n,) for n in range(9)]):
            given_out.append(number)
    assert sorted(given_out) == sorted(begun) == [0, 1, 2]


class Cancelling(Executor):
    """A cluster that drops what it is asked to do, as one does whose scheduler ended."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **_: Any) -> Future[Any]:
        future: Future[Any] = Future()
        if arguments == (1,):
            future.cancel()
            future.set_running_or_notify_cancel()
        else:
            future.set_result(arguments)
        return future


def test_calls_that_were_dropped_say_that_the_workers_are_gone() -> None:
    calls = [(0,), (1,), (2,)]
    found = iterate_as_finished(lambda: Pool(Cancelling(), 1), act, calls)
    assert next(found) == (0, (0,))
    with pytest.raises(UserError, match="The workers are gone") as caught:
        next(found)
    assert "--resume" in caught.value.fix
    results = iterate_in_order(Pool(Cancelling(), 1), act, calls)
    assert next(results) == (0,)
    with pytest.raises(UserError, match="The workers are gone"):
        next(results)


def test_processes_that_die_take_nobody_along() -> None:
    found = dict(
        iterate_as_finished(lambda: ProcessExecutor().open(2, None), os.path.join, [("a", "b"), ("c", "d"), ("e", "f")])
    )
    assert found == {0: "a/b", 1: "c/d", 2: "e/f"}
    calls = [("os.getpid() > 0",), ("os._exit(9)",), ("1 // 0",), ("os.kill(os.getpid(), 9)",), ("6 * 7",)]
    found = dict(iterate_as_finished(lambda: ProcessExecutor().open(2, None), evaluate, calls))
    assert sorted(found) == list(range(5))
    assert found[0] is True and found[4] == 42 and isinstance(found[2], ZeroDivisionError)
    assert isinstance(found[1], BrokenExecutor) and isinstance(found[3], BrokenExecutor)


def evaluate(text: str) -> Any:
    """The value of an expression, for another process."""
    return eval(text, {"os": os})


# -- in their order --------------------------------------------------------------------------------


@QUICK
@given(CALLS, st.integers(1, 5))
def test_results_come_in_the_order_of_the_calls_until_one_raises(calls: list[Call], size: int) -> None:
    first = next((number for number, (what, _) in enumerate(calls) if what == RAISE), len(calls))
    make = Made(size)
    found: list[int] = []
    with open_pool(make) as pool:
        try:
            for value in iterate_in_order(pool, act, numbered(calls)):
                found.append(value)
        except Boom as error:
            assert error.args == (first,)
        else:
            assert first == len(calls)
    assert found == [number * number for number in range(first)]
    assert not make.pools[0].is_open and make.pools[0].most <= size * PENDING_CALLS_PER_WORKER


@QUICK
@given(st.integers(0, 30), st.integers(1, 4), st.integers(0, 30))
def test_no_more_calls_are_drawn_than_may_be_under_way(count: int, size: int, taken: int) -> None:
    drawn = 0

    def calls() -> Iterator[tuple[str, int, int]]:
        nonlocal drawn
        for number in range(count):
            drawn += 1
            yield RETURN, 0, number

    with open_pool(Made(size)) as pool:
        results = iterate_in_order(pool, act, calls())
        for number in range(min(taken, count)):
            next(results)
            assert drawn <= number + size * PENDING_CALLS_PER_WORKER
        results.close()


def test_workers_that_die_are_a_mistake_in_one_sentence() -> None:
    with open_pool(Made(2)) as pool:
        results = iterate_in_order(pool, act, numbered([(RETURN, 0), (KILL, 5), (RETURN, 9), (RETURN, 0)]))
        with pytest.raises(UserError, match=r"died \((a process died|gone)\)") as caught:
            list(results)
    assert "--jobs" in caught.value.fix


def test_what_is_left_is_dropped_when_one_raises() -> None:
    with ThreadExecutor().open(1, None).executor as threads:
        futures: list[Future[Any]] = []
        submit = threads.submit

        def noting(*call: Any) -> Future[Any]:
            futures.append(submit(*call))
            return futures[-1]

        threads.submit = noting  # type: ignore[method-assign]
        with pytest.raises(Boom):
            list(iterate_in_order(Pool(threads, 4), act, numbered([(RAISE, 100), *[(RETURN, 50)] * 7])))
        assert futures[-1].cancelled()


# -- small parts -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [None, ValueError, KeyboardInterrupt])
def test_a_pool_is_let_go_however_its_block_ends(ends: type[BaseException] | None) -> None:
    make = Made(1)
    try:
        with open_pool(make) as pool:
            assert pool.executor is make.pools[0]
            if ends is not None:
                raise ends
    except BaseException as error:
        assert ends is not None and isinstance(error, ends)
    assert not make.pools[0].is_open


def test_a_pool_that_is_not_to_be_had() -> None:
    def none() -> Pool:
        raise UserError("No worker.", "Start one.")

    with pytest.raises(UserError, match="No worker"):
        list(iterate_as_finished(none, act, numbered([(RETURN, 0)])))
    assert list(iterate_as_finished(none, act, [])) == [], "nobody is called for nothing"


def test_the_reason_of_a_death_is_one_line() -> None:
    assert "died (one)" in create_lost_error(BrokenExecutor("one\ntwo")).what
    assert "no reason given" in create_lost_error(BrokenExecutor()).what
    assert str(create_lost_error(BrokenExecutor())).count("\n") == 1


@pytest.mark.parametrize("executor", [ThreadExecutor, ProcessExecutor])
def test_built_in_executors_have_no_scheduler(executor: type[ThreadExecutor] | type[ProcessExecutor]) -> None:
    with pytest.raises(UserError, match="has no scheduler"):
        executor().open(1, "tcp://127.0.0.1:1")
