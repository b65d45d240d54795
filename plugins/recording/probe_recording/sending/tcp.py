"""Sending over a TCP connection, in plain text or TLS: one thread that writes calls and reads answers."""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from probe_core.errors import make_printable
from probe_recording.sending.message import (
    PREFIX,
    PROTOCOL,
    Buffer,
    Frame,
    FrameError,
    FrameKind,
    FrameLimits,
    Prefix,
    encode_frame,
    get_number,
    get_text,
    parse_frame,
    parse_prefix,
)
from probe_recording.sending.outbox import Outbox
from probe_recording.sending.tls import create_sender_context
from probe_recording.sending.transport import ReceiverRefusal, Transport
from probe_recording.settings.destination import Destination

CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds for a connection and its TLS handshake."""
HELLO_TIMEOUT_SECONDS = 30.0
"""Seconds for the receiver's first answer."""
TALLY_INTERVAL_SECONDS = 5.0
ENCODE_AHEAD_BYTES = 1 << 20
"""Bytes that are encoded before they can be written."""
WRITE_BYTES = 1 << 18
"""Largest piece given to TLS at a time, in bytes."""
ANSWER_GATHERING_SECONDS = 0.02
"""Seconds for which answers are gathered while no calls are due."""
MAX_BUFFERS = 64
"""Largest number of buffers in one system call."""

TLS_ALERT = b"\x15\x03"

_ANSWER_LIMITS = FrameLimits(head=1 << 20, body=0)
_WOULD_BLOCK_ERRORS = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TcpSender(Transport):
    """A transport over TCP."""

    def __init__(self, destination: Destination, outbox: Outbox, hello: dict[str, Any]) -> None:
        super().__init__(destination, outbox, hello)
        self.wanted, self._waker = socket.socketpair()
        for end in (self.wanted, self._waker):
            end.setblocking(False)
        self._sleeping = False
        self._socket: socket.socket | None = None
        self._selector: selectors.BaseSelector | None = None

    def wake(self) -> None:
        """Let the thread look at the outbox."""
        if self._sleeping and not self._abandoned:
            self._sleeping = False
            with suppress(OSError):
                self._waker.send(b"x")

    def abandon(self) -> None:
        """Close the inherited descriptors, so that the connection ends with the parent process."""
        self._abandoned = True
        for resource in (self._socket, self._selector, self.wanted, self._waker):
            if resource is not None:
                with suppress(OSError):
                    resource.close()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread and close its connection."""
        self._sleeping = True
        super().stop(timeout)
        if not self._thread.is_alive():
            for end in (self.wanted, self._waker):
                end.close()

    # -- one connection ------------------------------------------------------------------------

    def _send_until_stopped(self, welcome: Callable[[], None]) -> None:
        connection = self._connect()
        self._socket = connection
        try:
            answers = _Answers()
            with self._explain_early_end():
                connection.settimeout(HELLO_TIMEOUT_SECONDS)
                for part in encode_frame(FrameKind.HELLO, self._hello):
                    connection.sendall(part)
                self._greet(connection, answers)
            welcome()
            connection.setblocking(False)
            with selectors.DefaultSelector() as selector:
                self._selector = selector
                _Conversation(self, connection, selector, answers).run()
        finally:
            self._socket = self._selector = None
            connection.close()

    def _connect(self) -> socket.socket:
        """Return a connection to the receiver, with TLS if that is configured."""
        context = create_sender_context(self._destination.tls) if self._destination.tls is not None else None
        connection = socket.create_connection((self._destination.host, self._destination.port), CONNECT_TIMEOUT_SECONDS)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            if context is not None:
                with self._explain_early_end():
                    return context.wrap_socket(connection, server_hostname=self._destination.host)
            return connection
        except BaseException:
            connection.close()
            raise

    @contextmanager
    def _explain_early_end(self) -> Iterator[None]:
        """Say what a connection that ends before the welcome may mean."""
        try:
            yield
        except (ConnectionError, ssl.SSLEOFError):
            wants = "TLS (tls_path, --tls DIR)"
            if self._destination.tls is not None:
                wants = "plain text, or a certificate of this end (client.key, client.crt)"
            raise ConnectionError(
                0, f"it closed the connection at once; it may expect {wants}, or be no receiver of probe"
            ) from None

    def _greet(self, connection: socket.socket, answers: _Answers) -> None:
        """Read the receiver's first answer and keep to its limits."""
        deadline = time.monotonic() + HELLO_TIMEOUT_SECONDS
        while (frame := answers.take_frame()) is None:
            if time.monotonic() > deadline:
                raise TimeoutError
            data = _receive_bytes(connection)
            if data[:2] == TLS_ALERT and self._destination.tls is None:
                raise FrameError("it expects TLS, and this end sends plain text (tls_path, or --tls DIR)")
            answers.add_data(data)
        if frame.kind is FrameKind.REFUSED:
            raise ReceiverRefusal(get_text(frame.head, "text"))
        if frame.kind is not FrameKind.WELCOME:
            raise FrameError(f"the receiver answers with {frame.kind.name} in place of a welcome")
        version = get_number(frame.head, "version")
        if version != PROTOCOL:
            raise ReceiverRefusal(f"it speaks version {version} of the protocol, and this probe version {PROTOCOL}")
        self.outbox.limit(*(get_number(frame.head, key) for key in ("most_body", "window_bytes", "window_calls")))

    def handle_answer(self, frame: Frame) -> bool:
        """Act on an answer of the receiver; return True if it was the last."""
        head = frame.head
        if frame.kind is FrameKind.DONE:
            seqs = head.get("seqs")
            if not isinstance(seqs, list) or any(type(seq) is not int for seq in seqs):
                raise FrameError('"seqs" of the receiver is not a list of whole numbers')
            self.outbox.acknowledge(seqs)
        elif frame.kind is FrameKind.AGAIN:
            self.outbox.requeue_damaged(get_number(head, "place"))
        elif frame.kind is FrameKind.REFUSED:
            raise ReceiverRefusal(get_text(head, "text"))
        elif frame.kind is not FrameKind.ENDED:
            raise FrameError(f"the receiver sends {frame.kind.name}, which a sender does not expect")
        if "verdicts" in head:
            self.verdicts = _parse_verdicts(head["verdicts"])
        return frame.kind is FrameKind.ENDED

    def sleep(self, is_asleep: bool) -> None:
        """Note that the thread waits, so that ``wake`` writes to it; forget what woke it."""
        self._sleeping = is_asleep
        if not is_asleep:
            with suppress(OSError):
                while self.wanted.recv(4096):
                    pass


class _Conversation:
    """The exchange of frames over one connection, after the welcome."""

    def __init__(
        self,
        sender: TcpSender,
        connection: socket.socket,
        selector: selectors.BaseSelector,
        answers: _Answers,
    ) -> None:
        self._sender = sender
        self.outbox = sender.outbox
        self._connection = connection
        self._selector = selector
        self._answers = answers
        self._pending: deque[memoryview] = deque()
        self._ahead = 0
        self._tally = "{}"
        self._tallied = 0.0
        self._calls = 0
        self._has_ended = False

    def run(self) -> None:
        """Write and read until the receiver has confirmed the end, or the thread is to stop."""
        selector, connection, sender = self._selector, self._connection, self._sender
        selector.register(connection, selectors.EVENT_READ)
        selector.register(sender.wanted, selectors.EVENT_READ)
        while not sender.stopping.is_set():
            sender.sleep(is_asleep=True)  # before looking, so that no change is missed
            delay = self.outbox.delay
            if delay == 0 or self.outbox.is_closed or not self._pending:
                self._fill(delay == 0)
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._pending else 0)
            selector.modify(connection, events)
            ready = {key.fileobj for key, _ in selector.select(delay or TALLY_INTERVAL_SECONDS)}
            sender.sleep(is_asleep=False)
            if connection in ready and not self._pending and delay != 0:
                self.outbox.wait_for_end(ANSWER_GATHERING_SECONDS)
            if connection in ready and self._read():
                return
            if self._pending:
                self._write()

    def _fill(self, is_due: bool) -> None:
        """Encode the next calls if they are due and the window has room, and the tally or the end."""
        while is_due and self._ahead < ENCODE_AHEAD_BYTES and (call := self.outbox.take()) is not None:
            frame = self._sender.encode_call(call)
            if frame:
                call.place = self._calls
                self._calls += 1
                self._add(frame)
        if self._has_ended:
            return
        if self.outbox.is_closed and self.outbox.is_empty:
            self._add(encode_frame(FrameKind.END, self.outbox.count_totals()))
            self._has_ended = True
        elif not self._pending and time.monotonic() > self._tallied + TALLY_INTERVAL_SECONDS:
            totals = self.outbox.count_totals()
            if (text := str(totals["dropped"])) != self._tally:
                self._add(encode_frame(FrameKind.TALLY, totals))
                self._tally = text
            self._tallied = time.monotonic()

    def _add(self, frame: Sequence[Buffer]) -> None:
        for part in frame:
            view = memoryview(part).cast("B")
            if view.nbytes:
                self._pending.append(view)
                self._ahead += view.nbytes

    def _write(self) -> None:
        """Write as much as the connection takes at once."""
        connection = self._connection
        try:
            while self._pending:
                if isinstance(connection, ssl.SSLSocket) or not hasattr(connection, "sendmsg"):
                    count = connection.send(self._pending[0][:WRITE_BYTES])
                else:
                    count = connection.sendmsg([*self._pending][:MAX_BUFFERS])
                self._ahead -= count
                while count:
                    first = self._pending[0]
                    if count < first.nbytes:
                        self._pending[0] = first[count:]
                        break
                    count -= first.nbytes
                    self._pending.popleft()
        except _WOULD_BLOCK_ERRORS:
            return

    def _read(self) -> bool:
        """Read all answers that have arrived; return True after the last of all."""
        with suppress(*_WOULD_BLOCK_ERRORS):
            while True:
                self._answers.add_data(_receive_bytes(self._connection))
                while (frame := self._answers.take_frame()) is not None:
                    if self._sender.handle_answer(frame):
                        return True
        return False


class _Answers:
    """The frames of a receiver, put together from the pieces that arrive."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._prefix: Prefix | None = None

    def add_data(self, data: bytes) -> None:
        """Add bytes."""
        self._bytes += data

    def take_frame(self) -> Frame | None:
        """Return the next whole frame, or None."""
        if self._prefix is None:
            if len(self._bytes) < PREFIX.size:
                return None
            self._prefix = parse_prefix(self._bytes, _ANSWER_LIMITS)
            del self._bytes[: PREFIX.size]
        if len(self._bytes) < self._prefix.size:
            return None
        prefix, self._prefix = self._prefix, None
        content = bytes(self._bytes[: prefix.size])
        del self._bytes[: prefix.size]
        return parse_frame(prefix, content)


def _receive_bytes(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionResetError(0, "the receiver closed the connection")
    return data


def _parse_verdicts(value: Any) -> dict[str, Counter[str]]:
    """Return the numbers of judged calls by status and API, checked and printable."""
    verdicts: dict[str, Counter[str]] = {}
    if not isinstance(value, dict):
        raise FrameError('"verdicts" of the receiver is not an object')
    for status, counts in value.items():
        if not isinstance(counts, dict):
            raise FrameError('"verdicts" of the receiver is not an object of objects')
        verdicts[make_printable(status, 40)] = Counter(
            {make_printable(api, 200): get_number(counts, api) for api in counts}
        )
    return verdicts
