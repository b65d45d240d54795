"""A small receiver of sent calls, which acknowledges them or misbehaves on order."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from probe_recording.sending.body import SentTensors
from probe_recording.sending.message import (
    PREFIX,
    PROTOCOL,
    DamagedFrame,
    Frame,
    FrameKind,
    SentCall,
    encode_frame,
    parse_call,
    parse_frame,
    parse_prefix,
)


class Receiver:
    """A receiver in a thread, on a free port of this machine.

    ``manners`` are the ways it treats one connection after the other; the last one stays. ``good`` acknowledges
    every call; ``cut:N`` closes the connection after N calls without acknowledging the last; ``silent`` never
    answers; ``mute`` welcomes and then never answers; ``rubbish`` answers no frame; ``refuse`` refuses;
    ``wrong`` acknowledges numbers that were never sent; ``again`` asks once more for every call, ``damaged``
    for ever; ``slow:N`` reads N bytes a second.
    """

    def __init__(
        self, manners: tuple[str, ...] = ("good",), context: ssl.SSLContext | None = None, port: int = 0,
        window: tuple[int, int] = (1 << 28, 1000), most_body: int = 1 << 30,
    ) -> None:  # fmt: skip
        self.manners = list(manners)
        self.context = context
        self.window, self.most_body = window, most_body
        self.calls: list[tuple[SentCall, bytes]] = []
        self.hellos: list[dict[str, Any]] = []
        self.tallies: list[dict[str, Any]] = []
        self.ends: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.bytes = 0
        self._asked: set[int] = set()
        self._connections: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def names(self) -> list[str]:
        """The names of all calls in the order of their arrival."""
        return [call.name for call, _ in self.calls]

    def tensors(self, name: str) -> SentTensors:
        """The tensors of the last call of this name."""
        return SentTensors(next(body for call, body in reversed(self.calls) if call.name == name))

    def close(self) -> None:
        """Close everything, as a receiver that dies."""
        self._closed = True
        for each in (self._socket, *self._connections):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            manner = self.manners.pop(0) if len(self.manners) > 1 else self.manners[0]
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection, manner), daemon=True).start()

    def _serve(self, connection: socket.socket, manner: str) -> None:
        try:
            if self.context is not None:
                connection = self.context.wrap_socket(connection, server_side=True)
                self._connections.append(connection)
            self._talk(connection, *f"{manner}:0".split(":")[:2])
        except (OSError, EOFError, ValueError) as error:
            self.problems.append(f"{type(error).__name__}: {error}")
        finally:
            connection.close()

    def _talk(self, connection: socket.socket, manner: str, number: str) -> None:
        if manner == "rubbish":
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(40))
            return
        if manner == "silent":
            while connection.recv(1 << 16):
                pass
            return
        hello = self._frame(connection)
        assert hello.kind is FrameKind.HELLO
        self.hellos.append(hello.head)
        if manner == "refuse":
            send(connection, FrameKind.REFUSED, text="rank 7 is not in rank_list [0]")
            return
        send(connection, FrameKind.WELCOME, version=PROTOCOL, most_body=self.most_body,
             window_bytes=self.window[0], window_calls=self.window[1])  # fmt: skip
        count = 0
        while True:
            frame = self._frame(connection, int(number) if manner == "slow" else 0)
            if frame.kind is FrameKind.CALL:
                call = parse_call(frame)
                count += 1
                if manner in ("again", "damaged") and (manner == "damaged" or call.seq not in self._asked):
                    self._asked.add(call.seq)
                    send(connection, FrameKind.AGAIN, place=count - 1)
                    continue
                self.calls.append((call, bytes(frame.body)))
                if manner == "cut" and count >= int(number):
                    time.sleep(0.2)  # the answers arrive before the end does
                    return
                if manner == "wrong":
                    send(connection, FrameKind.DONE, seqs=[call.seq + 1_000_000])
                elif manner != "mute":
                    send(connection, FrameKind.DONE, seqs=[call.seq])
            elif frame.kind is FrameKind.TALLY:
                self.tallies.append(frame.head)
            elif frame.kind is FrameKind.END:
                self.ends.append(frame.head)
                verdicts = {"pass": {"Functional.linear": 1}}
                send(connection, FrameKind.ENDED, verdicts=verdicts)

    def _frame(self, connection: socket.socket, speed: int = 0) -> Frame:
        prefix = parse_prefix(self._exactly(connection, PREFIX.size, 0))
        data = self._exactly(connection, prefix.size, speed)
        self.bytes += PREFIX.size + prefix.size
        try:
            return parse_frame(prefix, data)
        except DamagedFrame as error:
            self.problems.append(str(error))
            raise

    def _exactly(self, connection: socket.socket, size: int, speed: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            count = connection.recv_into(view[: speed // 10 or None])
            if not count:
                raise EOFError
            view = view[count:]
            if speed:
                time.sleep(count / speed)
        return data


def send(connection: socket.socket, kind: FrameKind, **head: Any) -> None:
    """Send a frame without a body."""
    connection.sendall(b"".join(encode_frame(kind, head)))


@contextmanager
def receiver(*manners: str, **settings: Any) -> Iterator[Receiver]:
    """Yield a receiver that is closed afterwards."""
    made = Receiver(manners or ("good",), **settings)
    try:
        yield made
    finally:
        made.close()


def certificate(directory: Path, name: str = "server", *, days: int = 2, host: str = "") -> Path:
    """A self-signed certificate and its key in a directory, made by openssl as people make theirs."""
    directory.mkdir(parents=True, exist_ok=True)
    names = ["-addext", f"subjectAltName=DNS:{host},IP:127.0.0.1"] if host else []
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=probe", *names,
               "-days", str(days), "-keyout", str(directory / f"{name}.key"),
               "-out", str(directory / f"{name}.crt")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    (directory / f"{name}.key").chmod(0o600)
    return directory
