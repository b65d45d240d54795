"""Receivers of the online pre-check as processes, and a sender that can be told to misbehave."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from probe_recording.sending.message import (
    PREFIX,
    Frame,
    FrameKind,
    FrameLimits,
    encode_frame,
    parse_frame,
    parse_prefix,
)

from support.programs.preloaded import PreloadedPopen

RESULTS = ("accuracy_checking_result_rank{}.csv", "api_precision_compare_result_rank{}.csv")
SLOW = 120.0
_ADDRESS = re.compile(r"waits for calls at (\S+), and")


class Receiver:
    """``probe run-ut`` as a receiver.

    Args:
        options: Its options, beside the device.
    """

    def __init__(self, *options: object) -> None:
        command = [sys.executable, "-m", "probe_core.cli", "run-ut", "-d", "cpu", *map(str, options)]
        self.process = PreloadedPopen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        self.said: list[str] = []
        self._began = threading.Event()
        self.address = ("", 0)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._began.wait(SLOW), self.said

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)
            match = _ADDRESS.search(line)
            if match is not None:
                host, _, port = match[1].rpartition(":")
                self.address = host, int(port) if port.isdecimal() else 0
                self._began.set()
        self._began.set()

    def kill(self) -> None:
        """Kill it at once."""
        self.process.kill()
        self.process.wait(SLOW)

    def end(self) -> tuple[int, str]:
        """Wait for its end; return its exit code and what it printed."""
        assert self.process.stdout is not None
        printed = self.process.stdout.read()
        code = self.process.wait(SLOW)
        self._reader.join(SLOW)
        return code, printed

    def interrupt(self) -> tuple[int, str]:
        """Press Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return self.end()


@contextmanager
def receiver(*options: object) -> Iterator[Receiver]:
    """A receiver that is killed at the end of the block if it still runs."""
    found = Receiver(*options)
    try:
        yield found
    finally:
        found.kill()


class Client:
    """A sender by hand: every frame is sent when the test says so.

    Args:
        address: The receiver.
        rank: The rank that it says it is.
        session: Its session.
        context: A TLS context.
        hello: Fields of its first frame that differ.
    """

    def __init__(
        self,
        address: tuple[str, int],
        rank: int = 0,
        session: str = "",
        context: Any = None,
        **hello: Any,
    ) -> None:
        self.session = session or uuid.uuid4().hex
        plain = socket.create_connection(address, SLOW)
        self.socket = plain if context is None else context.wrap_socket(plain, server_hostname=address[0])
        self.done: list[int] = []
        head = {"version": 1, "session": self.session, "rank": rank, "framework": "pytorch", "versions": {}}
        self.send(FrameKind.HELLO, {**head, **hello})
        self.first = self.read()

    def send(self, kind: FrameKind, head: Mapping[str, Any]) -> None:
        self.socket.sendall(b"".join(map(bytes, encode_frame(kind, head))))

    def call(self, frame: bytes) -> None:
        self.socket.sendall(frame)

    def read(self) -> Frame:
        prefix = parse_prefix(self._read(PREFIX.size), FrameLimits(body=0))
        frame = parse_frame(prefix, self._read(prefix.size))
        if frame.kind is FrameKind.DONE:
            self.done += frame.head["seqs"]
        return frame

    def wait_for(self, count: int) -> None:
        """Wait until so many calls are acknowledged."""
        while len(self.done) < count:
            self.read()

    def end(self, queued: int, dropped: Mapping[str, int] | None = None) -> Frame:
        """Say that there are no more calls; return the receiver's last frame."""
        self.send(FrameKind.END, {"queued": {"Torch.any": queued}, "dropped": dict(dropped or {})})
        while (frame := self.read()).kind is not FrameKind.ENDED:
            pass
        self.socket.close()
        return frame

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except ConnectionResetError:  # the receiver ended and had not read everything
                part = b""
            if not part:
                raise EOFError
            data += part
        return data


def send_all(address: tuple[str, int], frames: Iterable[bytes], rank: int = 0, context: Any = None) -> Frame:
    """Send calls as a well-behaved sender does; return the receiver's last frame."""
    return send_over(Client(address, rank, context=context), frames)


def send_over(client: Client, frames: Iterable[bytes]) -> Frame:
    """Send calls over a connection that has just been made, and end it; return the receiver's last frame."""
    assert client.first.kind is FrameKind.WELCOME, client.first
    sent = 0
    for frame in frames:
        client.call(frame)
        sent += 1
    client.wait_for(sent)
    assert sorted(client.done) == list(range(sent))
    return client.end(sent)


def result_rows(directory: Path) -> dict[str, list[dict[str, str]]]:
    """Return the rows of all csv files in a directory, by the names of the files without time stamp."""
    import csv

    found = {}
    for path in sorted(directory.glob("*.csv")):
        with path.open(encoding="utf-8-sig", newline="") as file:
            found[re.sub(r"_\d{14}_", "_", path.name)] = list(csv.DictReader(file))
    return found


def names_in(rows: dict[str, list[dict[str, str]]], rank: int = 0) -> list[tuple[str, str]]:
    """Return step and name of all calls with a row."""
    files = [rows.get(name.format(rank), []) for name in RESULTS]
    return [(row["Step"], row.get("API name") or row["API Name"]) for file in files for row in file]
