"""The queue of calls: bounded memory, calls dropped and counted by API, nothing lost that was queued."""

from __future__ import annotations

import threading
import time

import pytest
from probe_recording.sending import outbox as module
from probe_recording.sending.body import SentTensor
from probe_recording.sending.message import parse_frame_file
from probe_recording.sending.outbox import (
    CALL_OVERHEAD_BYTES,
    REASON_NO_ROOM,
    REASON_TOO_LARGE,
    Outbox,
    format_largest,
    parse_api,
)

MIB = 1 << 20


def put(outbox: Outbox, *names: str, size: int = CALL_OVERHEAD_BYTES) -> None:
    for name in names:
        assert outbox.reserve(size) is None
        outbox.put(0, f"{name}.forward", {}, [], size)


def test_names_of_apis() -> None:
    assert parse_api("Functional.linear.3.forward") == "Functional.linear"
    assert format_largest({"a": 1, "b": 3, "c": 2, "d": 1}, 2) == "b 3, c 2 and 2 more"


def test_memory_is_bounded_and_free_again_when_acknowledged() -> None:
    outbox = Outbox(4 * MIB)
    put(outbox, "a.0", "a.1", "a.2", size=MIB)
    assert outbox.reserve(2 * MIB) == REASON_NO_ROOM
    first = outbox.take()
    assert first is not None and first.name == "a.0.forward"
    assert outbox.reserve(2 * MIB) == REASON_NO_ROOM  # sent is not judged
    outbox.acknowledge([first.seq])
    assert outbox.reserve(2 * MIB) is None


def test_what_can_never_fit_is_told_apart() -> None:
    outbox = Outbox(MIB)
    assert outbox.reserve(MIB) == REASON_TOO_LARGE
    outbox.limit(1000, MIB, 10)
    assert outbox.reserve(1001) == REASON_TOO_LARGE
    put(outbox, "a.0", size=1000)
    outbox.limit(999, MIB, 10)
    assert outbox.take() is None and outbox.is_empty
    assert outbox.counts.dropped == {REASON_TOO_LARGE: {"a": 1}}
    assert outbox.reserve(990) is None  # its memory is free again


def test_dropped_calls_are_counted_by_api() -> None:
    outbox = Outbox(MIB)
    for name in ("a.0", "a.1", "b.0"):
        outbox.drop(f"{name}.forward", REASON_NO_ROOM)
    assert outbox.count_totals() == {"queued": {}, "dropped": {"a": 2, "b": 1}}


def test_waiting_is_bounded_in_each_step() -> None:
    outbox = Outbox(MIB, waits=True, most_wait=0.3)
    put(outbox, "a.0", size=MIB - CALL_OVERHEAD_BYTES)
    begin = time.monotonic()
    assert [outbox.reserve(MIB // 2) for _ in range(20)] == [REASON_NO_ROOM] * 20
    assert 0.25 < time.monotonic() - begin < 2
    outbox.begin_step()
    threading.Timer(0.05, lambda: (outbox.take(), outbox.acknowledge([0]))).start()
    assert outbox.reserve(MIB // 2) is None


def test_the_window_limits_what_is_in_flight() -> None:
    outbox = Outbox(100 * MIB)
    outbox.limit(MIB, 3 * CALL_OVERHEAD_BYTES, 2)
    put(outbox, *(f"a.{i}" for i in range(6)))
    assert [outbox.take() is not None for _ in range(3)] == [True, True, False]
    outbox.acknowledge([0, 0, 17])
    taken = outbox.take()
    assert taken is not None and taken.seq == 2
    outbox.limit(MIB, CALL_OVERHEAD_BYTES // 2, 10)  # one call larger than the window is sent alone
    outbox.acknowledge([1, 2])
    assert outbox.take() is not None and outbox.take() is None


def test_a_new_connection_sends_again_what_was_not_acknowledged_and_nothing_else() -> None:
    outbox = Outbox(100 * MIB)
    put(outbox, *(f"a.{i}" for i in range(5)))
    for _ in range(4):
        outbox.take()
    outbox.acknowledge([1])
    outbox.requeue_sent_calls()
    again = [outbox.take() for _ in range(5)]
    assert [call.seq for call in again if call] == [0, 2, 3, 4]
    assert outbox.counts.resent == 3


def test_a_damaged_call_is_sent_three_times() -> None:
    outbox = Outbox(MIB)
    put(outbox, "a.0")
    for place in range(3):
        call = outbox.take()
        assert call is not None
        call.place = place
        outbox.requeue_damaged(place + 1)  # no call of this connection
        assert outbox.take() is None
        outbox.requeue_damaged(place)
    assert outbox.take() is None and outbox.is_empty
    assert outbox.count_totals() == {"queued": {}, "dropped": {"a": 1}}
    assert outbox.counts.dropped == {"damaged": {"a": 1}} and outbox.reserve(MIB - CALL_OVERHEAD_BYTES) is None


def test_calls_are_gathered_while_the_training_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[float | None] = []
    outbox = Outbox(16 * MIB)
    outbox.on_change = lambda: woken.append(outbox.delay)
    assert outbox.delay is None
    put(outbox, "a.0", "a.1")
    assert len(woken) == 1 and 0.5 < (woken[0] or 0) <= 1
    outbox.note_idle()
    assert woken[1:] == [0] and outbox.delay == 0
    put(outbox, "a.2", size=5 * MIB)  # a quarter of the memory is due at once
    assert outbox.delay == 0
    monkeypatch.setattr(module, "GATHERING_SECONDS", 0.0)
    put(outbox, "a.3")
    assert outbox.delay == 0


def test_many_threads_lose_nothing() -> None:
    outbox = Outbox(64 * CALL_OVERHEAD_BYTES, waits=True, most_wait=60)
    done = threading.Event()

    def send() -> None:
        while not done.is_set() or not outbox.is_empty:
            call = outbox.take()
            if call is not None:
                outbox.acknowledge([call.seq])

    sender = threading.Thread(target=send)
    makers = [threading.Thread(target=put, args=(outbox, *(f"a{i}.{n}" for n in range(300)))) for i in range(4)]
    for thread in (sender, *makers):
        thread.start()
    for thread in makers:
        thread.join()
    done.set()
    sender.join()
    assert outbox.counts.acknowledged == {f"a{i}": 300 for i in range(4)}
    assert outbox.reserve(63 * CALL_OVERHEAD_BYTES) is None


def test_a_call_becomes_a_frame() -> None:
    outbox = Outbox(MIB)
    outbox.put(3, "a.0.forward", {"input_args": []}, [SentTensor("x", "uint8", (2,), b"ab")], 0)
    call = outbox.take()
    assert call is not None
    frame = parse_frame_file(b"".join(call.create_frame(5)))
    assert frame.head == {"seq": 0, "step": 3, "rank": 5, "name": "a.0.forward", "fields": {"input_args": []}}
    assert bytes(frame.body).endswith(b"ab")
