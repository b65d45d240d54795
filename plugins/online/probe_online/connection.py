"""Connection of a receiver: the conversation with one sender (docs/formats.md#online-frames)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from probe_recording.sending.message import (
    PREFIX,
    PROTOCOL,
    DamagedFrame,
    Frame,
    FrameError,
    FrameKind,
    FrameLimits,
    Prefix,
    encode_frame,
    get_counts,
    get_number,
    get_numbers,
    get_session,
    get_text,
    parse_call,
    parse_frame,
    parse_prefix,
)

from probe_online.desk import Desk
from probe_online.judging import SentPayload
from probe_online.settings import MESSAGE_LIMITS, ReceiverSettings
from probe_online.window import ConnectionShare, IncomingFrame, MemoryWindow

GREETING_SECONDS = 15.0
"""Time in which a connection must report who it is."""
STALLED_SECONDS = 120.0
"""Time without progress after which a connection is closed: within a frame, or if answers are not read."""
MIN_RATE = 16 << 10
"""Bytes per second of a frame that keep a connection open for longer than that."""
FIRST_FRAME_LIMITS = FrameLimits(head=64 << 10, body=0)
"""Limits of the first frame of a connection."""
READ_BYTES = 1 << 20
"""Largest number of bytes read at a time."""
UNREAD_ANSWER_BYTES = 64 << 10
"""Bytes of unread answers from which no further frame is read."""
VERDICTS_INTERVAL_SECONDS = 2.0
"""Seconds between two acknowledgements that include the verdicts so far."""


@dataclass(frozen=True, slots=True)
class Reception:
    """Parts that all connections of a receiver share.

    Attributes:
        order: The limits.
        framework: The framework of the trainings whose calls are judged.
        desk: The desk that accepts calls.
        window: The memory for calls.
        loop: The loop of the server's thread.
        greet: Notes rank, session and expected ranks of a connection; raises ``Refusal``.
    """

    order: ReceiverSettings
    framework: str
    desk: Desk
    window: MemoryWindow
    loop: asyncio.AbstractEventLoop
    greet: Callable[[Connection, int, str, Sequence[int]], None]


class Connection:
    """Connection from one sender, or from a stranger.

    Args:
        reception: The parts that all connections share.
        reader: The bytes that arrive.
        writer: The bytes that are sent.
        host: The address of the other end.

    Attributes:
        sender: The rank and session of the sender, once it has reported them.
        is_broken: True if nothing more can be sent.
    """

    def __init__(
        self, reception: Reception, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._reception = reception
        self._reader, self._writer = reader, writer
        self._host = host
        self.sender: tuple[int, str] | None = None
        self.is_broken = False
        self._share = ConnectionShare()
        self._settled: list[int] = []
        self._open = 0
        self._calls = 0
        self._ending = False
        self._told = 0.0

    async def run(self) -> None:
        """Converse until either end closes the connection."""
        desk = self._reception.desk
        try:
            first = await asyncio.wait_for(self._read_first_frame(), GREETING_SECONDS)
            if first is None:
                return
            if first.kind is FrameKind.STATUS:
                self._send(FrameKind.STATUS_REPLY, desk.ledger.state())
                await asyncio.wait_for(self._writer.drain(), GREETING_SECONDS)
                return
            self._greet(first)
            while await self._handle_next_frame():
                await self._wait_for_reader()
        except Refusal as refusal:
            desk.refuse(f"{self._who} was refused: {refusal}.")
            await self._refuse(str(refusal))
        except FrameError as error:
            if self.sender is not None:  # damaged on the way: the sender comes back and sends it again
                desk.add_sentence(f"The connection of {self._who} was closed: {error}.")
                self.is_broken = True
                return
            desk.refuse(f"{self._who} was refused: {error}.")
            await self._refuse(str(error))
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, EOFError):
            self.is_broken = True

    @property
    def _who(self) -> str:
        return self._host if self.sender is None else f"{self._host} (rank {self.sender[0]})"

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_broken = True
        self._writer.transport.abort()

    def _give_way(self) -> None:
        self._reception.desk.add_sentence(
            f"The connection of {self._who} was closed: its call was slow, and others needed the memory."
        )
        self.abort()

    # -- in ----------------------------------------------------------------------------------------

    def _greet(self, hello: Frame) -> None:
        if hello.kind is not FrameKind.HELLO:
            raise Refusal("it does not begin with who it is")
        version = get_number(hello.head, "version")
        rank, framework = get_number(hello.head, "rank"), get_text(hello.head, "framework", 40)
        session = get_session(hello.head)
        order, expected_framework = self._reception.order, self._reception.framework
        if version != PROTOCOL:
            raise Refusal(f"it speaks version {version}, this receiver version {PROTOCOL}: install one probe on both")
        if framework != expected_framework:
            raise Refusal(
                f"its calls are of {framework}, this receiver judges those of {expected_framework} (--framework)"
            )
        if order.ranks is not None and rank not in order.ranks:
            raise Refusal(f"rank {rank} is not in the receiver's rank_list")
        self._reception.greet(self, rank, session, get_numbers(hello.head, "ranks"))
        welcome = {
            "version": PROTOCOL,
            "most_body": order.most_body,
            "window_bytes": order.window,
            "window_calls": order.calls,
        }
        self._send(FrameKind.WELCOME, welcome)

    async def _read_first_frame(self) -> Frame | None:
        try:
            data = await self._reader.readexactly(PREFIX.size)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return None
            raise
        prefix = parse_prefix(data, FIRST_FRAME_LIMITS)
        return parse_frame(prefix, await self._reader.readexactly(prefix.size))

    async def _handle_next_frame(self) -> bool:
        """Read one frame and act on it; return False at the end of the connection."""
        data = await self._reader.read(PREFIX.size)
        if not data:
            return False
        if len(data) < PREFIX.size:
            rest = self._reader.readexactly(PREFIX.size - len(data))
            data += await asyncio.wait_for(rest, STALLED_SECONDS)
        prefix = parse_prefix(data, FrameLimits(body=self._reception.order.most_body))
        if prefix.kind is not FrameKind.CALL and (prefix.body or prefix.head > MESSAGE_LIMITS.head):
            raise FrameError(f"a {prefix.kind.name} is too long")
        frame = await self._reception.window.begin(self._share, prefix.size, self._give_way)
        try:
            content = await self._receive(frame)
            if prefix.kind is FrameKind.CALL:
                await self._call(prefix, content, frame)
            else:
                self._handle_message(parse_frame(prefix, content))
        finally:
            self._reception.window.drop(frame)
        return True

    async def _receive(self, frame: IncomingFrame) -> bytearray:
        """Read the bytes that follow a prefix, whose lengths were checked.

        Raises:
            EOFError: The connection ended.
            asyncio.TimeoutError: The bytes arrive too slowly.
            ConnectionAbortedError: Others needed the memory.
        """
        content = bytearray()
        while frame.missing:
            limit = STALLED_SECONDS + frame.received / MIN_RATE - frame.network_seconds
            with frame.measure_wait():
                data = await asyncio.wait_for(self._reader.read(min(READ_BYTES, frame.missing)), limit)
            if not data:
                raise EOFError
            await self._reception.window.take(frame, len(data))
            content += data
        return content

    async def _call(self, prefix: Prefix, content: bytearray, frame: IncomingFrame) -> None:
        place, self._calls = self._calls, self._calls + 1
        try:
            call = parse_call(parse_frame(prefix, content))
        except DamagedFrame:
            self._send(FrameKind.AGAIN, {"place": place})
            return
        except FrameError as error:
            raise Refusal(str(error)) from None
        assert self.sender is not None
        if call.rank != self.sender[0]:
            raise Refusal(f"a call is of rank {call.rank}, its sender is rank {self.sender[0]}")
        call.fields.clear()  # they are parsed again by the process that judges the call
        reception, sender, size = self._reception, self.sender, prefix.size
        await reception.window.put_in_work(frame)
        self._open += 1

        def settle(earlier: bool) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                reception.loop.call_soon_threadsafe(self._settle, sender, call.seq, size, earlier)

        if not reception.desk.take(sender[1], call, SentPayload(content, 0, prefix.head), settle):
            reception.window.release(self._share, size)

    def _handle_message(self, frame: Frame) -> None:
        """Act on a frame that is not a call."""
        assert self.sender is not None
        ledger = self._reception.desk.ledger
        if frame.kind in (FrameKind.TALLY, FrameKind.END):
            queued, dropped = (get_counts(frame.head, key) for key in ("queued", "dropped"))
            ledger.tally(*self.sender, queued, dropped)
            self._ending = self._ending or frame.kind is FrameKind.END
            self._end()
        elif frame.kind is FrameKind.STATUS:
            self._send(FrameKind.STATUS_REPLY, ledger.state())
        else:
            raise FrameError(f"a sender does not send {frame.kind.name}")

    # -- out ---------------------------------------------------------------------------------------

    def _settle(self, sender: tuple[int, str], seq: int, size: int, earlier: bool) -> None:
        """Acknowledge a call, with others that are settled at the same time."""
        self._reception.desk.ledger.settle(*sender, seq, earlier=earlier)
        self._reception.window.release(self._share, size)
        self._open -= 1
        self._settled.append(seq)
        if len(self._settled) == 1:
            self._reception.loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        seqs, self._settled = self._settled, []
        now = self._reception.loop.time()
        head: dict[str, Any] = {"seqs": seqs}
        if now > self._told + VERDICTS_INTERVAL_SECONDS and self.sender is not None:
            self._told = now
            head["verdicts"] = self._reception.desk.ledger.count_verdicts(*self.sender)
        self._send(FrameKind.DONE, head)
        self._end()

    def _end(self) -> None:
        """Report to a sender that has no more calls that all are judged."""
        if self._ending and not self._open and self.sender is not None:
            ledger = self._reception.desk.ledger
            ledger.complete(*self.sender)
            self._send(FrameKind.ENDED, {"verdicts": ledger.count_verdicts(*self.sender)})

    def _send(self, kind: FrameKind, head: Mapping[str, Any]) -> None:
        if not self.is_broken and not self._writer.is_closing():
            self._writer.writelines([bytes(part) for part in encode_frame(kind, head)])

    async def _wait_for_reader(self) -> None:
        """Read no further frame while the other end does not read its answers."""
        if self._writer.transport.get_write_buffer_size() > UNREAD_ANSWER_BYTES:
            await asyncio.wait_for(self._writer.drain(), STALLED_SECONDS)

    async def _refuse(self, text: str) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._send(FrameKind.REFUSED, {"text": text})
            await asyncio.wait_for(self._writer.drain(), 1.0)


class Refusal(Exception):
    """Reason for refusing a connection."""
