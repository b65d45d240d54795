"""TCP server of a receiver: frames in, acknowledgements out (docs/online.md#in-a-network).

It runs in a thread of its own. Before a frame's body is read, its bytes are taken from the window that all
senders share; they are given back when the call's rows are written. So memory is bounded, and a receiver that
is slower than the trainings makes them wait or drop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from probe_recording import (
    PREFIX,
    PROTOCOL,
    DamagedFrame,
    Frame,
    FrameError,
    FrameKind,
    FrameLimits,
    Prefix,
    call_of,
    counts_in,
    encode_frame,
    frame_of,
    number_in,
    numbers_in,
    prefix_of,
    sentence_of,
    text_in,
)

from probe_core.errors import UserError, printable
from probe_online.desk import Desk
from probe_online.judging import SentPayload
from probe_online.settings import Receiving

MOST_STRANGERS = 256
"""Connections that have not said who they are; if there is one more, the oldest of them is closed."""
GREETING = 15.0
"""Seconds in which a connection must have said who it is."""
STALLED = 120.0
"""Seconds without a byte in the middle of a frame after which a connection is closed."""
STRANGER = FrameLimits(head=64 << 10, body=0)
"""Limits of the first frame of a connection."""
PART = 1 << 20
VERDICTS_EVERY = 2.0
"""Seconds between two acknowledgements that tell the verdicts so far."""


class Window:
    """Bytes and calls that may be in work; used by the server's thread alone.

    Args:
        size: The bytes.
        calls: The number of calls.
    """

    def __init__(self, size: int, calls: int) -> None:
        self._size, self._calls = size, calls
        self._taken = self._count = 0
        self._changed = asyncio.Condition()

    async def take(self, size: int) -> None:
        """Wait until there is room for a call, and take it; a call larger than the window goes alone."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: not self._count or (self._taken + size <= self._size and self._count < self._calls)
            )
            self._taken += size
            self._count += 1

    async def give(self, size: int) -> None:
        """Give back the room of a call."""
        async with self._changed:
            self._taken -= size
            self._count -= 1
            self._changed.notify_all()


class Server:
    """Server of one receiver.

    Args:
        order: The address and the limits.
        framework: The framework of the trainings whose calls are judged.
        desk: The desk that takes calls.
        context: Returns the TLS context for a new connection; None for plain text.
    """

    def __init__(
        self, order: Receiving, framework: str, desk: Desk, context: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self.order = order
        self.framework = framework
        self.desk = desk
        self._context = context
        self._thread = threading.Thread(target=self._run, name="probe-receiver", daemon=True)
        self._ready = threading.Event()
        self._problem: OSError | None = None
        self._stopping: asyncio.Event | None = None
        self._talks: dict[tuple[int, str], Talk] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        self.loop: asyncio.AbstractEventLoop
        self.window: Window
        self.address: tuple[str, int] = ("", 0)

    def start(self) -> str:
        """Listen; return the address and the port as text.

        Raises:
            UserError: The address cannot be listened at.
        """
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            place = self.order.place
            raise UserError(
                f"{place.host}:{place.port} cannot be listened at: "
                f"{self._problem.strerror or self._problem}.",
                "Give an address of this machine and a free port.",
            )
        host, port = self.address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def stop(self) -> None:
        """Close all connections, and end the thread."""
        if self._stopping is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):  # it has just ended
                self.loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join(5.0)

    def _run(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda loop, context: None)  # a broken connection is no news
        self.window = Window(self.order.window, self.order.calls)
        self._stopping = asyncio.Event()
        try:
            listener = _listener(self.order.place.host, self.order.place.port)
        except OSError as error:
            self._problem = error
            self._ready.set()
            return
        with listener:
            self.address = listener.getsockname()[:2]
            self._ready.set()
            accepting = asyncio.create_task(self._accept(listener))
            await self._stopping.wait()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(accepting, *tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, address = await self.loop.sock_accept(listener)
            except OSError:  # too many open files
                await asyncio.sleep(0.2)
                continue
            if len(self._strangers) >= MOST_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.cancel()
                self.desk.hear(
                    f"More than {MOST_STRANGERS} connections did not say who they are; some were closed."
                )
            task = asyncio.create_task(self._serve(connection, address[0]))
            self._strangers[task] = None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: self._strangers.pop(done, None))

    async def _serve(self, connection: socket.socket, host: str) -> None:
        """Talk with one connection until it ends; nothing that it does reaches others."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(limit=PART)
        protocol = asyncio.StreamReaderProtocol(reader)
        more: dict[str, Any] = {}
        try:
            if self._context is not None:
                more = {"ssl": self._context(), "ssl_handshake_timeout": GREETING}
            transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, connection, **more)
        except (OSError, UserError) as error:
            connection.close()
            self.desk.hear(f"{host} was not let in: {_sentence(error)}.")
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        talk = Talk(self, reader, asyncio.StreamWriter(transport, protocol, reader, self.loop), host)
        try:
            await talk.run()
        finally:
            if talk.sender is not None and self._talks.get(talk.sender) is talk:
                del self._talks[talk.sender]
                self.desk.ledger.leave(*talk.sender)
            transport.abort() if talk.is_broken else transport.close()

    def greet(self, talk: Talk, rank: int, session: str, expected: Sequence[int]) -> None:
        """Note the sender of a connection; an older connection of the same is closed.

        Raises:
            UserError: The state file cannot be written.
        """
        task = asyncio.current_task()
        assert task is not None
        self._strangers.pop(task, None)
        older = self._talks.get((rank, session))
        self._talks[rank, session] = talk
        talk.sender = rank, session
        if older is not None:
            older.abort()
        self.desk.ledger.greet(rank, session, expected)


class Talk:
    """Conversation with one connection.

    Args:
        server: The server.
        reader: What arrives.
        writer: What is sent.
        host: The address of the other end.

    Attributes:
        sender: The rank and session of the sender, once it has said so.
        is_broken: True if nothing more can be sent.
    """

    def __init__(
        self, server: Server, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str
    ) -> None:
        self._server = server
        self._reader, self._writer = reader, writer
        self._host = host
        self.sender: tuple[int, str] | None = None
        self.is_broken = False
        self._settled: list[int] = []
        self._open = 0
        self._calls = 0
        self._ending = False
        self._told = 0.0

    async def run(self) -> None:
        """Talk until either end has had enough."""
        desk = self._server.desk
        try:
            first = await asyncio.wait_for(self._frame(STRANGER), GREETING)
            if first is None:
                return
            if first.kind is FrameKind.STATUS:
                self._send(FrameKind.STATUS_REPLY, desk.ledger.state())
                await self._writer.drain()
                return
            self._greet(first)
            while await self._next():
                pass
        except Refusal as refusal:
            desk.hear(f"{self._who} was refused: {refusal}.")
            await self._refuse(str(refusal))
        except FrameError as error:
            if self.sender is not None:  # damaged on the way: the sender comes back and sends it again
                desk.hear(f"The connection of {self._who} was closed: {error}.")
                self.is_broken = True
                return
            desk.hear(f"{self._who} was refused: {error}.")
            await self._refuse(str(error))
        except UserError as error:  # the training may try again later
            desk.hear(error.what)
            self.is_broken = True
        except (OSError, asyncio.IncompleteReadError, asyncio.TimeoutError, EOFError):
            self.is_broken = True

    @property
    def _who(self) -> str:
        return self._host if self.sender is None else f"{self._host} (rank {self.sender[0]})"

    def abort(self) -> None:
        """Close the connection at once."""
        self.is_broken = True
        self._writer.transport.abort()

    # -- in ----------------------------------------------------------------------------------------

    def _greet(self, hello: Frame) -> None:
        if hello.kind is not FrameKind.HELLO:
            raise Refusal("it does not begin with who it is")
        version = number_in(hello.head, "version")
        rank, framework = number_in(hello.head, "rank"), text_in(hello.head, "framework", 40)
        session = text_in(hello.head, "session", 64)
        order, own = self._server.order, self._server.framework
        if version != PROTOCOL:
            raise Refusal(
                f"it speaks version {version}, this receiver version {PROTOCOL}: install one probe on both"
            )
        if framework != own:
            raise Refusal(f"its calls are of {framework}, this receiver judges those of {own} (--framework)")
        if order.ranks is not None and rank not in order.ranks:
            raise Refusal(f"rank {rank} is not in the receiver's rank_list")
        self._server.greet(self, rank, session, numbers_in(hello.head, "ranks"))
        welcome = {
            "version": PROTOCOL,
            "most_body": order.most_body,
            "window_bytes": order.window,
            "window_calls": order.calls,
        }
        self._send(FrameKind.WELCOME, welcome)

    async def _next(self) -> bool:
        """Read and heed one frame; return False at the end of the connection."""
        data = await self._reader.read(PREFIX.size)
        if not data:
            return False
        if len(data) < PREFIX.size:
            data += await asyncio.wait_for(self._reader.readexactly(PREFIX.size - len(data)), STALLED)
        order = self._server.order
        prefix = prefix_of(data, FrameLimits(body=order.most_body))
        if prefix.kind is FrameKind.CALL:
            await self._call(prefix)
            return True
        assert self.sender is not None
        if prefix.body or prefix.head > STRANGER.head * 64:
            raise FrameError(f"a {prefix.kind.name} is too long")
        frame = frame_of(prefix, await self._content(prefix))
        if frame.kind in (FrameKind.TALLY, FrameKind.END):
            queued, dropped = (counts_in(frame.head, key) for key in ("queued", "dropped"))
            self._server.desk.ledger.tally(*self.sender, queued, dropped)
            self._ending = self._ending or frame.kind is FrameKind.END
            self._end()
        elif frame.kind is FrameKind.STATUS:
            self._send(FrameKind.STATUS_REPLY, self._server.desk.ledger.state())
        else:
            raise FrameError(f"a sender does not send {frame.kind.name}")
        return True

    async def _call(self, prefix: Prefix) -> None:
        place, self._calls = self._calls, self._calls + 1
        await self._server.window.take(prefix.size)
        taken = False
        try:
            content = await self._content(prefix)
            try:
                call = call_of(frame_of(prefix, content))
            except DamagedFrame:
                self._send(FrameKind.AGAIN, {"place": place})
                return
            except FrameError as error:
                raise Refusal(str(error)) from None
            assert self.sender is not None
            if call.rank != self.sender[0]:
                raise Refusal(f"a call is of rank {call.rank}, its sender is rank {self.sender[0]}")
            self._open += 1
            loop, sender, size = self._server.loop, self.sender, prefix.size

            def settle(earlier: bool) -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(self._settle, sender, call.seq, size, earlier)

            taken = self._server.desk.take(SentPayload(call, content, prefix.head), settle)
        finally:
            if not taken:
                await self._server.window.give(prefix.size)

    async def _frame(self, limits: FrameLimits) -> Frame | None:
        try:
            data = await self._reader.readexactly(PREFIX.size)
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                return None
            raise
        prefix = prefix_of(data, limits)
        return frame_of(prefix, await self._content(prefix))

    async def _content(self, prefix: Prefix) -> bytearray:
        """Read what follows a prefix, whose lengths were checked."""
        content = bytearray(prefix.size)
        place = 0
        while place < len(content):
            data = await asyncio.wait_for(self._reader.read(min(PART, len(content) - place)), STALLED)
            if not data:
                raise EOFError
            content[place : place + len(data)] = data
            place += len(data)
        return content

    # -- out ---------------------------------------------------------------------------------------

    def _settle(self, sender: tuple[int, str], seq: int, size: int, earlier: bool) -> None:
        """Acknowledge a call, with others that are settled at the same time."""
        self._server.desk.ledger.settle(*sender, seq, earlier=earlier)
        self._server.loop.create_task(self._server.window.give(size))
        self._open -= 1
        self._settled.append(seq)
        if len(self._settled) == 1:
            self._server.loop.call_soon(self._acknowledge)

    def _acknowledge(self) -> None:
        seqs, self._settled = self._settled, []
        now = self._server.loop.time()
        head: dict[str, Any] = {"seqs": seqs}
        if now > self._told + VERDICTS_EVERY and self.sender is not None:
            self._told = now
            head["verdicts"] = self._server.desk.ledger.verdicts_of(self.sender[0])
        self._send(FrameKind.DONE, head)
        self._end()

    def _end(self) -> None:
        """Tell a sender that has no more calls that all are judged."""
        if self._ending and not self._open and self.sender is not None:
            ledger = self._server.desk.ledger
            ledger.complete(*self.sender)
            self._send(FrameKind.ENDED, {"verdicts": ledger.verdicts_of(self.sender[0])})

    def _send(self, kind: FrameKind, head: Mapping[str, Any]) -> None:
        if not self.is_broken and not self._writer.is_closing():
            self._writer.writelines([bytes(part) for part in encode_frame(kind, head)])

    async def _refuse(self, text: str) -> None:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            self._send(FrameKind.REFUSED, {"text": text})
            await asyncio.wait_for(self._writer.drain(), 1.0)


class Refusal(Exception):
    """Reason for refusing a connection."""


def _listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: The address cannot be listened at.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = found[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MOST_STRANGERS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _sentence(error: Exception) -> str:
    return error.what.rstrip(".") if isinstance(error, UserError) else printable(sentence_of(error), 200)
