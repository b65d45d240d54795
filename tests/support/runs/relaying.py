"""A relay between a sender and a receiver, which harms what passes as a test asks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from probe_recording.sending.message import PREFIX

Fault = Callable[[int, bytes], Sequence[bytes]]
"""Frames to be passed on in place of the frame of this number, counted over all connections from 0."""


class Cut(Exception):
    """The connection ends after these bytes."""

    def __init__(self, last: bytes = b"") -> None:
        super().__init__(last)
        self.last = last


class Relay:
    """A port of this machine behind which is the receiver ``target``, which may change.

    Args:
        target: The address of the receiver; None while there is none.
        fault: What becomes of the sender's frames.
        answers: What becomes of the receiver's frames.
        speed: Bytes a second that pass from the sender; 0 for any number.
        framed: False to pass bytes, as those of TLS, without looking for frames.
    """

    def __init__(
        self, target: tuple[str, int] | None, fault: Fault | None = None, answers: Fault | None = None,
        speed: int = 0, framed: bool = True,
    ) -> None:  # fmt: skip
        self.target = target
        self.connections = self.passed = 0
        self._faults = {False: fault, True: answers}
        self._numbers = {False: 0, True: 0}
        self._speed, self._framed = speed, framed
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Cut all connections."""
        for end in self._open:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def close(self) -> None:
        """End all."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self.target is None:
                    raise ConnectionRefusedError
                far = socket.create_connection(self.target, 10)
            except OSError:
                near.close()
                continue
            self.connections += 1
            near.settimeout(None)
            far.settimeout(None)
            self._open += [near, far]
            for source, sink, back in ((near, far, False), (far, near, True)):
                threading.Thread(target=self._pump, args=(source, sink, back), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        try:
            while True:
                for piece in self._next(source, back):
                    self._pass(sink, piece, back)
        except Cut as cut:
            with suppress(OSError):
                sink.sendall(cut.last)
        except (OSError, EOFError):
            pass
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _next(self, source: socket.socket, back: bool) -> Sequence[bytes]:
        if not self._framed:
            data = source.recv(1 << 16)
            if not data:
                raise EOFError
            return [data]
        prefix = _exactly(source, PREFIX.size)
        _, _, _, head, body, _ = PREFIX.unpack(prefix)
        frame = prefix + _exactly(source, head + body)
        with self._lock:
            number = self._numbers[back]
            self._numbers[back] += 1
        fault = self._faults[back]
        return [frame] if fault is None else fault(number, frame)

    def _pass(self, sink: socket.socket, data: bytes, back: bool) -> None:
        if back or not self._speed:
            sink.sendall(data)
            self.passed += 0 if back else len(data)
            return
        size = max(1, self._speed // 20)
        for place in range(0, len(data), size):
            sink.sendall(data[place : place + size])
            self.passed += len(data[place : place + size])
            time.sleep(0.05)


def _exactly(source: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = source.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return bytes(data)


@contextmanager
def relay(
    target: tuple[str, int] | None, fault: Fault | None = None, answers: Fault | None = None,
    speed: int = 0, framed: bool = True,
) -> Iterator[Relay]:  # fmt: skip
    """Yield a relay that is closed afterwards."""
    made = Relay(target, fault, answers, speed, framed)
    try:
        yield made
    finally:
        made.close()
