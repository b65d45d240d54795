"""The window: room for bytes that arrived, shared among connections, without a deadlock."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from probe_online import window
from probe_online.window import ConnectionShare, IncomingFrame, MemoryWindow

SECONDS = 20.0
"""Time in which what does not wait for others has ended on any machine."""


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(story(), SECONDS * 5)

    asyncio.run(limited())


def nothing() -> None:
    """Close nothing."""


async def soon(task: asyncio.Task[Any]) -> None:
    """Check that a task ends."""
    await asyncio.wait_for(task, SECONDS)


async def waits(task: asyncio.Task[Any]) -> None:
    """Check that a task does not end while nothing changes."""
    await asyncio.sleep(0.05)
    assert not task.done()


def make_slow(arrival: IncomingFrame) -> None:
    """Let a frame have waited for the network for a long time."""
    arrival.waited += 1e6


def make_stalled(arrival: IncomingFrame) -> None:
    """Let a frame wait for its next byte for a long time."""
    arrival.waits_since = time.monotonic() - 1e6


def test_window_gives_room_while_another_frame_is_only_announced() -> None:
    async def story() -> None:
        shared = MemoryWindow(100, 10)
        announced = await shared.begin(ConnectionShare(), 100, nothing)
        make_slow(announced)
        for _ in range(5):
            other = await shared.begin(ConnectionShare(), 100, nothing)
            await shared.take(other, 100)
            shared.drop(other)
        assert shared.used == 0

    run(story)


def test_window_keeps_room_for_the_frames_that_began_earlier() -> None:
    async def story() -> None:
        shared = MemoryWindow(100, 10)
        first = await shared.begin(ConnectionShare(), 60, nothing)
        second = await shared.begin(ConnectionShare(), 60, nothing)
        await shared.take(second, 40)
        more = asyncio.create_task(shared.take(second, 10))
        await waits(more)
        await shared.take(first, 60)
        await shared.put_in_work(first)
        await waits(more)
        shared.release(first.share, 60)
        await soon(more)

    run(story)


def test_window_keeps_no_room_for_slow_frames() -> None:
    async def story() -> None:
        shared = MemoryWindow(100, 10)
        slow = await shared.begin(ConnectionShare(), 90, nothing)
        await shared.take(slow, 10)
        make_slow(slow)
        other = await shared.begin(ConnectionShare(), 90, nothing)
        await shared.take(other, 90)

    run(story)


def test_window_closes_stalled_frames_that_others_need_the_room_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "ROOM_SECONDS", 0.0)
    closed: list[str] = []

    async def story() -> None:
        shared = MemoryWindow(100, 10)
        slow = await shared.begin(ConnectionShare(), 90, lambda: closed.append("slow"))
        await shared.take(slow, 60)
        make_stalled(slow)
        quick = await shared.begin(ConnectionShare(), 80, lambda: closed.append("quick"))
        await shared.take(quick, 40)
        assert not closed
        await shared.take(quick, 40)
        assert closed == ["slow"] and shared.used == 80
        with pytest.raises(ConnectionAbortedError):
            await shared.take(slow, 1)

    run(story)


def test_window_completes_the_earliest_of_frames_that_need_the_same_room() -> None:
    closed: list[str] = []

    async def story() -> None:
        shared = MemoryWindow(100, 10)
        both = [await shared.begin(ConnectionShare(), 80, lambda n=number: closed.append(n)) for number in "ab"]
        for one in both:
            make_slow(one)
            await shared.take(one, 50)
        later = asyncio.create_task(shared.take(both[1], 30))
        await waits(later)
        await soon(asyncio.create_task(shared.take(both[0], 30)))
        assert closed == ["b"]
        await asyncio.gather(later, return_exceptions=True)

    run(story)


def test_window_gives_each_connection_a_share() -> None:
    async def story() -> None:
        shared = MemoryWindow(100, 4)
        busy, other = ConnectionShare(), ConnectionShare()

        async def send(share: ConnectionShare, size: int) -> None:
            arrival = await shared.begin(share, size, nothing)
            await shared.take(arrival, size)
            await shared.put_in_work(arrival)

        await send(other, 10)
        await send(busy, 20)
        await send(busy, 20)
        third = asyncio.create_task(send(busy, 20))
        await waits(third)  # two calls of four are its share
        await send(other, 10)
        shared.release(other, 10)
        shared.release(other, 10)
        await soon(third)

    run(story)


def test_window_takes_a_limited_number_of_calls() -> None:
    async def story() -> None:
        shared = MemoryWindow(100, 1)
        arrivals = [await shared.begin(ConnectionShare(), 10, nothing) for _ in range(3)]
        for arrival in arrivals:
            await shared.take(arrival, 10)
        await shared.put_in_work(arrivals[0])
        others = [asyncio.create_task(shared.put_in_work(arrival)) for arrival in arrivals[1:]]
        for task in others:
            await waits(task)
        others[0].cancel()
        await asyncio.gather(others[0], return_exceptions=True)
        shared.release(arrivals[0].share, 10)
        await soon(others[1])
        shared.release(arrivals[2].share, 10)
        assert shared.used == 0

    run(story)


@pytest.mark.parametrize("number", range(5))
def test_window_never_holds_more_than_its_size_and_ends(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections of all speeds send frames of all sizes; each is sent again until it is judged."""
    monkeypatch.setattr(window, "SLOW_CHECK_SECONDS", 0.002)
    monkeypatch.setattr(window, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(window, "ROOM_SECONDS", 0.01)
    chance = random.Random(number)
    most: list[int] = []

    async def story() -> None:
        shared = MemoryWindow(1000, 8)

        async def send(speed: int) -> None:
            share = ConnectionShare()
            for _ in range(6):
                size = chance.choice((10, 100, 500, 1000))
                while not await attempt(share, size, speed):
                    await asyncio.sleep(0.001)

        async def attempt(share: ConnectionShare, size: int, speed: int) -> bool:
            arrival = await shared.begin(share, size, nothing)
            try:
                while arrival.missing:
                    part = min(speed, arrival.missing)
                    with arrival.measure_wait():
                        await asyncio.sleep(0.001)
                    await shared.take(arrival, part)
                    most.append(shared.used)
                await shared.put_in_work(arrival)
            except ConnectionAbortedError:
                return False
            finally:
                shared.drop(arrival)
            asyncio.get_running_loop().call_later(chance.uniform(0, 0.01), shared.release, share, size)
            return True

        await asyncio.gather(*(send(chance.choice((50, 200, 1000))) for _ in range(8)))
        await asyncio.sleep(0.05)
        assert shared.used == 0

    run(story)
    assert max(most) <= 1000
