"""The bounded queue between a training, which puts calls in, and a transport, which sends them.

Memory is reserved before a tensor is copied, and is free again when the receiver has acknowledged the call. A
call for which there is no room is dropped and counted by API, or the training waits for room, for a limited
time in each step. Nothing here sends anything.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from probe_recording.sending.body import SentTensor, encode_body
from probe_recording.sending.message import Buffer, FrameKind, encode_call_head, encode_frame
from probe_recording.values.leaves import Tree, encode

REASON_NO_ROOM = "no room"
"""Reason of a dropped call: the memory for calls that wait to be sent or judged was used up."""
REASON_REFUSED = "refused"
"""Reason: the receiver does not want the calls of this training."""
REASON_TOO_LARGE = "too large"
"""Reason: the call alone exceeds the memory for waiting calls, or the largest body of the receiver."""
REASON_DAMAGED = "damaged"
"""Reason: the call arrived damaged three times."""
REASON_RECORDER_ERROR = "recorder error"
"""Reason: the recorder failed on the call; its error log says why."""

REASON_UNFINISHED = "unfinished"
"""Reason: the call had not returned when its step ended."""

GATHERING_BYTES, GATHERING_SECONDS = 64 << 20, 1.0
"""Bytes, and seconds, of calls that are gathered before they are sent while the training makes calls.

Sending needs the interpreter, which the training would have to wait for more often if each call went at once.
"""

CALL_OVERHEAD_BYTES = 4096
"""Bytes counted for a waiting call beside its tensors."""
MAX_TRIES = 3


@dataclass(slots=True, eq=False)
class QueuedCall:
    """A call that waits to be sent, or was sent and is not acknowledged yet.

    Attributes:
        seq: Its number in this session.
        step: The step.
        name: The name of its forward record.
        fields: The record.
        tensors: The copies of its tensors.
        size: Bytes of memory reserved for it.
        tries: Number of times that it was sent.
        damaged: Number of times that it arrived damaged.
        place: Number of its latest frame among the calls of its connection, from 0.
    """

    seq: int
    step: int
    name: str
    fields: Tree
    tensors: list[SentTensor]
    size: int
    tries: int = 0
    damaged: int = 0
    place: int = -1

    def create_frame(self, rank: int) -> list[Buffer]:
        """Return the call as a frame, in buffers to be written one after the other."""
        head = encode_call_head(self.seq, self.step, rank, self.name, encode(self.fields))
        return encode_frame(FrameKind.CALL, head, encode_body(self.tensors) if self.tensors else ())


@dataclass(slots=True)
class Counts:
    """Numbers of calls, each by API.

    Attributes:
        queued: Calls that were put into the queue, and not dropped afterwards.
        acknowledged: Calls that the receiver has judged, or skipped as its lists ask.
        dropped: Calls that were not or will not be judged, by reason.
        resent: Number of calls sent more than once; not by API.
    """

    queued: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    dropped: dict[str, Counter[str]] = field(default_factory=dict)
    resent: int = 0

    @property
    def dropped_by_api(self) -> Counter[str]:
        """Dropped calls for whatever reason."""
        return sum(self.dropped.values(), Counter())


class Outbox:
    """A queue of calls within a limit of memory; all methods may be called from any thread.

    Args:
        most_memory: Bytes that may be reserved at a time.
        waits: True to let the training wait for room, False to drop.
        most_wait: Seconds that the training may wait in a step.

    Attributes:
        most_memory: Bytes that may be reserved at a time.
        most_body: The largest body that the receiver accepts, in bytes.
        refused: True while the receiver does not want this training; no further call is taken.
        on_change: A function that wakes the transport; it must return at once.
        counts: Numbers of calls so far.
    """

    def __init__(self, most_memory: int, waits: bool = False, most_wait: float = 60.0) -> None:
        self.most_memory = most_memory
        self.on_change: Callable[[], None] = _do_nothing
        self.refused = False
        self.counts = Counts()
        self._waits, self._most_wait = waits, most_wait
        self._patience = most_wait
        self._changed = threading.Condition()
        self._reserved = 0
        self._next = 0
        self._queue: deque[QueuedCall] = deque()
        self._sent: dict[int, QueuedCall] = {}
        self._in_flight = self._queued = 0
        self.most_body = most_memory
        self._window = (most_memory, 1 << 30)
        self._closed = False
        self._ended = threading.Event()
        self._resting = True
        self._since = 0.0

    # -- the training's side -------------------------------------------------------------------

    def begin_step(self) -> None:
        """Allow the full time of waiting again."""
        self._patience = self._most_wait

    def reserve(self, size: int) -> str | None:
        """Reserve memory for ``size`` bytes before they are copied, waiting for it if that is asked for.

        Returns:
            None, or the reason for which there is no room.
        """
        with self._changed:
            if self.refused:
                return REASON_REFUSED
            if size + CALL_OVERHEAD_BYTES > self.most_memory or size > self.most_body:
                return REASON_TOO_LARGE
            if self._reserved + size > self.most_memory and not self._wait_for(size):
                return REASON_NO_ROOM
            self._reserved += size
            return None

    def _wait_for(self, size: int) -> bool:
        """Wait until ``size`` bytes have room; return False if they have none in time."""
        if not self._waits or self._patience <= 0:
            return False
        begin = time.monotonic()
        try:
            return self._changed.wait_for(
                lambda: self._reserved + size <= self.most_memory or self._closed, self._patience
            )
        finally:
            self._patience -= time.monotonic() - begin

    def release(self, size: int) -> None:
        """Give back reserved memory."""
        with self._changed:
            self._reserved -= size
            self._changed.notify_all()

    def put(self, step: int, name: str, fields: Tree, tensors: list[SentTensor], size: int) -> None:
        """Queue a complete call.

        Args:
            step: The step.
            name: The name of its forward record.
            fields: The record.
            tensors: The copies of its tensors.
            size: Bytes reserved for them.
        """
        with self._changed:
            before, self._resting = self.delay, False
            if not self._queue:
                self._since = time.monotonic()
            self._queue.append(QueuedCall(self._next, step, name, fields, tensors, size))
            self._next += 1
            self._queued += size
            self.counts.queued[parse_api(name)] += 1
            is_due = before is None or (before > 0 and self.delay == 0)
        if is_due:
            self.on_change()

    def drop(self, name: str, reason: str) -> None:
        """Count a call that will not be sent."""
        with self._changed:
            self.counts.dropped.setdefault(reason, Counter())[parse_api(name)] += 1

    def close(self) -> None:
        """Note that nothing more will be queued."""
        with self._changed:
            self._closed = True
            self._ended.set()
            self._changed.notify_all()
        self.on_change()

    def wait_until_empty(self, timeout: float) -> bool:
        """Wait until every call is acknowledged; return False if that takes longer."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._queue and not self._sent, timeout)

    # -- the transport's side ------------------------------------------------------------------

    def note_idle(self) -> None:
        """Note that the training makes no calls for now, so that those that are queued are sent at once."""
        self._resting = True
        self.on_change()

    @property
    def delay(self) -> float | None:
        """Seconds after which the queued calls are to be sent; 0 for now, None if there are none."""
        if not self._queue:
            return None
        if self._resting or self._closed or self._queued >= min(GATHERING_BYTES, self.most_memory // 4):
            return 0.0
        return max(0.0, self._since + GATHERING_SECONDS - time.monotonic())

    def wait_for_end(self, timeout: float) -> None:
        """Wait until nothing more will be queued, or the time is over."""
        self._ended.wait(timeout)

    @property
    def is_closed(self) -> bool:
        """True once nothing more will be queued."""
        return self._closed

    @property
    def is_empty(self) -> bool:
        """True if every call that was queued is acknowledged or dropped."""
        return not self._queue and not self._sent

    def limit(self, most_body: int, window_bytes: int, window_calls: int) -> None:
        """Set the limits of the receiver.

        Args:
            most_body: The largest body that it accepts, in bytes.
            window_bytes: Bytes that may be sent and not acknowledged.
            window_calls: Calls that may be sent and not acknowledged.
        """
        with self._changed:
            self.most_body = most_body
            self._window = window_bytes, window_calls

    def take(self) -> QueuedCall | None:
        """Return the next call to send, or None if there is none or the window is full."""
        with self._changed:
            while self._queue:
                call = self._queue[0]
                if call.size > self.most_body:
                    self._queued -= call.size
                    self._drop_queued(self._queue.popleft(), REASON_TOO_LARGE)
                    continue
                size, calls = self._window
                if self._sent and (self._in_flight + call.size > size or len(self._sent) >= calls):
                    return None
                self._queue.popleft()
                self._queued -= call.size
                self._sent[call.seq] = call
                self._in_flight += call.size
                call.tries += 1
                self.counts.resent += call.tries == 2
                return call
            return None

    def acknowledge(self, seqs: Iterable[int]) -> None:
        """Forget calls that the receiver has judged; numbers that are not in flight are ignored."""
        with self._changed:
            for seq in seqs:
                call = self._sent.pop(seq, None)
                if call is not None:
                    self._in_flight -= call.size
                    self.counts.acknowledged[parse_api(call.name)] += 1
                    self._release_memory(call)
            self._changed.notify_all()

    def requeue_damaged(self, place: int) -> None:
        """Queue the call at this place of the connection once more because it arrived damaged.

        It is dropped after the third time.
        """
        with self._changed:
            call = next((call for call in self._sent.values() if call.place == place), None)
            if call is None:
                return
            del self._sent[call.seq]
            self._in_flight -= call.size
            call.damaged += 1
            if call.damaged >= MAX_TRIES:
                self._drop_queued(call, REASON_DAMAGED)
            else:
                self._queue.appendleft(call)
                self._queued += call.size

    def requeue_sent_calls(self) -> None:
        """Queue everything that was sent and not acknowledged once more, in its old order."""
        with self._changed:
            self._queue.extendleft(sorted(self._sent.values(), key=lambda call: -call.seq))
            self._sent.clear()
            self._queued += self._in_flight
            self._in_flight = 0

    def count_totals(self) -> dict[str, dict[str, int]]:
        """Return the numbers of calls queued and dropped, each by API, as a TALLY or END holds them."""
        with self._changed:
            return {"queued": dict(self.counts.queued), "dropped": dict(self.counts.dropped_by_api)}

    def count_unacknowledged(self) -> Counter[str]:
        """Return the numbers of calls, by API, that were queued and are neither acknowledged nor dropped."""
        with self._changed:
            return Counter(parse_api(call.name) for call in (*self._queue, *self._sent.values()))

    def give_up(self, seq: int, reason: str) -> None:
        """Drop a call that was taken and cannot be sent."""
        with self._changed:
            call = self._sent.pop(seq, None)
            if call is not None:
                self._in_flight -= call.size
                self._drop_queued(call, reason)

    def _drop_queued(self, call: QueuedCall, reason: str) -> None:
        api = parse_api(call.name)
        self.counts.queued[api] -= 1  # so that calls queued and dropped are all that were made
        self.counts.queued += Counter()
        self.counts.dropped.setdefault(reason, Counter())[api] += 1
        self._release_memory(call)

    def _release_memory(self, call: QueuedCall) -> None:
        self._reserved -= call.size
        call.tensors, call.fields = [], None
        self._changed.notify_all()


def parse_api(name: str) -> str:
    """Return the API of a forward record: its name without call count and phase."""
    return name.rsplit(".", 2)[0]


def format_largest(counts: Mapping[str, int], number: int = 3) -> str:
    """Return the APIs with the largest counts as a message shows them."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{api} {count:,}" for api, count in ordered[:number])
    return shown + (f" and {len(ordered) - number} more" if len(ordered) > number else "")


def _do_nothing(*_: Any) -> None:
    """Do nothing."""
