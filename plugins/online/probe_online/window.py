"""The memory window that all senders of a receiver share (docs/online.md#bounds).

Only bytes that have arrived are counted, so a frame that is announced but not sent takes no room. A frame whose
bytes have arrived gets free room, except for the room that earlier fast frames still need. If frames that arrive
slowly occupy the room that others wait for, they are closed, and their senders send them again.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

FAST_RATE = 32 << 20
"""Bytes per second of a fast frame: its other bytes are expected soon, so room is reserved for them."""
PAUSE_SECONDS = 1.0
"""Time without a byte after which a frame is stalled and no longer fast; shorter pauses are allowed."""
ROOM_SECONDS = 2.0
"""Time that a frame waits for room before slow frames are closed."""
PROTECTED_SECONDS = 60.0
"""Network time during which the earliest frame is not closed while its bytes arrive, even slowly."""
SLOW_CHECK_SECONDS = 0.2
"""Seconds between two searches for slow frames while others wait for room."""


@dataclass(eq=False, slots=True)
class ConnectionShare:
    """The share of a connection in the window.

    Attributes:
        bytes: The bytes of its calls in work.
        calls: The number of its calls in work.
        frame: The frame that is arriving on it; None if there is none.
    """

    bytes: int = 0
    calls: int = 0
    frame: IncomingFrame | None = None


@dataclass(eq=False, slots=True)
class IncomingFrame:
    """A frame that is arriving.

    Attributes:
        share: The share of its connection.
        size: The bytes that its prefix announces.
        close: Function that closes the connection, so that no more bytes of the frame arrive.
        received: The bytes that have room in the window.
        waited: Seconds in which the receiver waited for bytes of the frame.
        waits_since: The start time of the current wait; None if the receiver does not wait.
        needs_room: True while it has bytes that have no room.
        is_closed: True if the frame was closed to make room.
        began: The time at which the frame began.
    """

    share: ConnectionShare
    size: int
    close: Callable[[], None]
    received: int = 0
    waited: float = 0.0
    waits_since: float | None = None
    needs_room: bool = False
    is_closed: bool = False
    began: float = field(default_factory=time.monotonic)

    @property
    def missing(self) -> int:
        """Bytes that have not arrived."""
        return self.size - self.received

    @property
    def idle_seconds(self) -> float:
        """Seconds since the last byte arrived; 0 while it needs room."""
        return 0.0 if self.waits_since is None else time.monotonic() - self.waits_since

    @property
    def network_seconds(self) -> float:
        """Seconds in which the receiver has waited for bytes of the frame so far."""
        return self.waited + self.idle_seconds

    @property
    def is_fast(self) -> bool:
        """True if the bytes that are missing are expected soon."""
        return self.network_seconds <= PAUSE_SECONDS + self.received / FAST_RATE

    @property
    def is_stalled(self) -> bool:
        """True if its bytes do not arrive."""
        return not self.is_fast and self.idle_seconds > PAUSE_SECONDS

    @contextlib.contextmanager
    def measure_wait(self) -> Iterator[None]:
        """Measure the time of the block as a wait for the network."""
        self.waits_since = began = time.monotonic()
        try:
            yield
        finally:
            self.waits_since = None
            self.waited += time.monotonic() - began


class MemoryWindow:
    """Limits of the bytes and calls in memory; only the thread of the server uses it.

    Args:
        size: The number of bytes. No frame is larger.
        calls: The largest number of calls in work.
    """

    def __init__(self, size: int, calls: int) -> None:
        self._size, self._calls = size, calls
        self._bytes_in_work = self._calls_in_work = 0
        self._received = 0
        self._shares: set[ConnectionShare] = set()
        self._changed = asyncio.Event()

    @property
    def used(self) -> int:
        """Bytes of frames that are arriving or in work."""
        return self._received + self._bytes_in_work

    # -- frames and calls --------------------------------------------------------------------------

    async def begin(self, share: ConnectionShare, size: int, close: Callable[[], None]) -> IncomingFrame:
        """Return an incoming frame as soon as the share of its connection has room for it.

        The window is shared equally among the connections that use it. A connection that has no call in work
        may send a call that is larger than its share.

        Args:
            share: The share of the connection.
            size: The bytes that the prefix announces.
            close: Function that closes the connection.
        """
        while share.calls and not self._has_share(share, size):
            await self._wait_for_change()
        share.frame = IncomingFrame(share, size, close)
        self._shares.add(share)
        return share.frame

    async def take(self, frame: IncomingFrame, size: int) -> None:
        """Wait until there is room for the bytes of a frame that have arrived.

        Raises:
            ConnectionAbortedError: The frame was closed to make room for others.
        """
        began = time.monotonic()
        frame.needs_room = True
        try:
            while not frame.is_closed and not self._may_take(frame, size):
                if not self._make_room(time.monotonic() - began):
                    await self._wait_for_change()
        finally:
            frame.needs_room = False
        if frame.is_closed:
            raise ConnectionAbortedError(0, "it was closed to make room for other calls")
        frame.received += size
        self._received += size

    async def put_in_work(self, frame: IncomingFrame) -> None:
        """Turn a complete frame into a call in work, as soon as the number of calls in work allows it."""
        share = self._end(frame)
        self._bytes_in_work += frame.size
        share.bytes += frame.size
        share.calls += 1
        self._shares.add(share)
        try:
            while self._calls_in_work >= self._calls:
                await self._wait_for_change()
        except BaseException:  # the connection was closed
            self._release_bytes(share, frame.size)
            raise
        self._calls_in_work += 1

    def drop(self, frame: IncomingFrame) -> None:
        """Release the room of a frame that was not put in work; otherwise do nothing."""
        if frame.share.frame is frame:
            self._end(frame)

    def release(self, share: ConnectionShare, size: int) -> None:
        """Release the room of a call in work.

        Args:
            share: The share of the connection on which the call arrived.
            size: The bytes of its frame.
        """
        self._calls_in_work -= 1
        self._release_bytes(share, size)

    # -- the rules ---------------------------------------------------------------------------------

    def _has_share(self, share: ConnectionShare, size: int) -> bool:
        """Return True if a further call of this size fits in the share of a connection."""
        share_count = len(self._shares | {share})
        return share.calls < max(1, self._calls // share_count) and share.bytes + size <= self._size // share_count

    def _may_take(self, frame: IncomingFrame, size: int) -> bool:
        """Return True if the bytes have room, and each earlier fast frame can still be completed.

        As in the banker's algorithm, a frame can be completed with the room that is free after the calls in work and
        the earlier frames are processed.
        """
        room = self._size - self._received - size  # free after the calls in work are processed
        if room < self._bytes_in_work:
            return False
        for earlier in self._list_incoming_frames():
            if earlier is frame:
                break
            if earlier.is_fast:
                if earlier.missing > room:
                    return False
                room += earlier.received
        return True

    def _make_room(self, seconds: float) -> bool:
        """Close frames that occupy the room that others need.

        Args:
            seconds: The time for which a frame has waited for room.

        Returns:
            True if a frame was closed.
        """
        frames = self._list_incoming_frames()
        if not self._bytes_in_work and all(frame.needs_room for frame in frames):
            return self._close(frames[-1:]) if len(frames) > 1 else False
        if seconds < ROOM_SECONDS or self._received <= self._bytes_in_work:
            return False
        if stalled := [frame for frame in frames if frame.is_stalled]:
            return self._close(stalled)
        slow = [frame for frame in frames if not frame.is_fast and not frame.needs_room]
        if slow and slow[0] is frames[0] and slow[0].network_seconds < PROTECTED_SECONDS:
            del slow[0]
        return self._close(sorted(slow, key=lambda frame: frame.idle_seconds)[-1:])

    def _close(self, frames: Sequence[IncomingFrame]) -> bool:
        for frame in frames:
            frame.is_closed = True
            self.drop(frame)
            frame.close()
        return bool(frames)

    def _list_incoming_frames(self) -> list[IncomingFrame]:
        """Return the frames that are arriving, the earliest first."""
        frames = [share.frame for share in self._shares if share.frame is not None]
        return sorted(frames, key=lambda frame: frame.began)

    # -- changes -----------------------------------------------------------------------------------

    def _end(self, frame: IncomingFrame) -> ConnectionShare:
        share = frame.share
        share.frame = None
        self._received -= frame.received
        self._note_change(share)
        return share

    def _release_bytes(self, share: ConnectionShare, size: int) -> None:
        self._bytes_in_work -= size
        share.bytes -= size
        share.calls -= 1
        self._note_change(share)

    def _note_change(self, share: ConnectionShare) -> None:
        if not share.calls and share.frame is None:
            self._shares.discard(share)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_for_change(self) -> None:
        """Wait until room is released, or a frame may have become slow."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._changed.wait(), SLOW_CHECK_SECONDS)
