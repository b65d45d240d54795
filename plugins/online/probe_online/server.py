"""TCP server of a receiver: connections, and the limits on all of them (docs/online.md#in-a-network).

It runs in a thread of its own. Memory is bounded by the window that all senders share: a receiver that is
slower than the trainings makes them wait or drop calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from typing import Any

from probe_recording.sending.message import FrameLimits
from probe_recording.sending.tls import format_connection_error

from probe_core.errors import UserError, make_printable
from probe_online.connection import GREETING_SECONDS, Connection, Reception, Refusal
from probe_online.desk import Desk
from probe_online.ledger import MAX_SESSIONS
from probe_online.settings import ReceiverSettings
from probe_online.window import MemoryWindow

MAX_STRANGERS = 256
"""Connections that have not reported who they are; if there is one more, the oldest of them is closed."""
MAX_SENDERS = 512
"""Connections of senders. With the strangers they fit the usual limit of 1,024 open files."""
READ_BUFFER_BYTES = 64 << 10
"""Bytes of a connection beyond which no more are read before they have room in the window."""


class Server:
    """Server of one receiver.

    Args:
        order: The address and the limits.
        framework: The framework of the trainings whose calls are judged.
        desk: The desk that takes calls.
        context: Returns the TLS context for a new connection; None for plain text.
    """

    def __init__(
        self, order: ReceiverSettings, framework: str, desk: Desk, context: Callable[[], ssl.SSLContext] | None
    ) -> None:
        self.order = order
        self.framework = framework
        self.desk = desk
        self._context = context
        self._thread = threading.Thread(target=self._run, name="probe-receiver", daemon=True)
        self._ready = threading.Event()
        self._problem: OSError | None = None
        self._stopping: asyncio.Event | None = None
        self._connections: dict[tuple[int, str], Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers: dict[asyncio.Task[None], None] = {}
        self.loop: asyncio.AbstractEventLoop
        self._reception: Reception
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
                f"{place.host}:{place.port} cannot be listened at: {self._problem.strerror or self._problem}.",
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
        window = MemoryWindow(self.order.window + FrameLimits().head, self.order.calls)
        self._reception = Reception(self.order, self.framework, self.desk, window, self.loop, self._greet)
        self._stopping = asyncio.Event()
        try:
            listener = _create_listener(self.order.place.host, self.order.place.port)
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
            if len(self._strangers) >= MAX_STRANGERS:
                oldest = next(iter(self._strangers))
                del self._strangers[oldest]
                oldest.cancel()
                self.desk.refuse(f"More than {MAX_STRANGERS} connections did not say who they are; some were closed.")
            task = asyncio.create_task(self._serve(connection, address[0]))
            self._strangers[task] = None
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(lambda done: self._strangers.pop(done, None))

    async def _serve(self, connection: socket.socket, host: str) -> None:
        """Talk with one connection until it ends; nothing that it does reaches others."""
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        reader = asyncio.StreamReader(limit=READ_BUFFER_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        extra_options: dict[str, Any] = {}
        try:
            if self._context is not None:
                extra_options = {"ssl": self._context(), "ssl_handshake_timeout": GREETING_SECONDS}
            transport, _ = await self.loop.connect_accepted_socket(lambda: protocol, connection, **extra_options)
        except (OSError, UserError) as error:
            connection.close()
            self.desk.refuse(f"{host} was not let in: {_describe_error(error)}.")
            return
        except asyncio.CancelledError:
            connection.close()
            raise
        connected = Connection(
            self._reception, reader, asyncio.StreamWriter(transport, protocol, reader, self.loop), host
        )
        try:
            await connected.run()
        finally:
            sender = connected.sender
            if sender is not None and self._connections.get(sender) is connected:
                del self._connections[sender]
                self.desk.ledger.note_disconnect(*sender)
            transport.abort() if connected.is_broken else transport.close()

    def _greet(self, connected: Connection, rank: int, session: str, expected: Sequence[int]) -> None:
        """Note the sender of a connection; an older connection of the same sender is closed.

        Raises:
            Refusal: There are as many senders as this receiver accepts.
        """
        older = self._connections.get((rank, session))
        if older is None and len(self._connections) >= MAX_SENDERS:
            raise Refusal(f"{MAX_SENDERS} others are connected, which is the limit of a receiver")
        if not self.desk.ledger.has_room_for(rank, session):
            raise Refusal(f"{MAX_SESSIONS:,} sessions have been judged, which is the limit of a receiver")
        task = asyncio.current_task()
        assert task is not None
        self._strangers.pop(task, None)
        self._connections[rank, session] = connected
        connected.sender = rank, session
        if older is not None:
            older.abort()
        self.desk.greet(rank, session, expected)


def _create_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Raises:
        OSError: The address cannot be listened at.
    """
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, _, _, _, address = addresses[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(MAX_STRANGERS)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def _describe_error(error: Exception) -> str:
    return (
        error.what.rstrip(".") if isinstance(error, UserError) else make_printable(format_connection_error(error), 200)
    )
