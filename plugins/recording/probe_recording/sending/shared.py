"""Sending through a directory that two machines share: one file per frame, renamed when it is complete.

A call is named ``{session}.r{rank}.{number}.prb``. The other frames of a sender have ``hello``, ``tally`` or
``end`` in place of the number. While a file is written, its name begins with a dot. A receiver claims a file
by renaming it, and removes it when the call is judged. The sender is done with a call as soon as its file is
on disk. The names are described in docs/formats.md#online-frames.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from probe_core.files.atomic import create_file
from probe_recording.sending.message import Buffer, FrameKind, encode_frame
from probe_recording.sending.outbox import Outbox
from probe_recording.sending.transport import Transport
from probe_recording.settings.destination import Destination

SUFFIX = ".prb"
MESSAGE_TAGS = {FrameKind.HELLO: "hello", FrameKind.TALLY: "tally", FrameKind.END: "end"}
FULL_DIRECTORY_POLL_SECONDS = 1.0
"""Seconds between two checks of a directory that is full of unclaimed calls."""
TALLY_INTERVAL_SECONDS = 5.0
HELLO_INTERVAL_SECONDS = 3600.0
"""Seconds after which the first message is written again; a receiver removes the files of silent senders."""

_NAME = re.compile(r"([0-9a-f]{32})\.r(\d{1,7})\.(\d{10,16}|hello|tally|end)\.prb")


class SharedName(NamedTuple):
    """The parsed name of a file in a shared directory.

    Attributes:
        session: The session of the sender.
        rank: Its rank.
        kind: The kind of the frame.
        seq: The number of the call; -1 for other frames.
    """

    session: str
    rank: int
    kind: FrameKind
    seq: int

    def __str__(self) -> str:
        tag = MESSAGE_TAGS.get(self.kind) or f"{self.seq:010d}"
        return f"{self.session}.r{self.rank}.{tag}{SUFFIX}"


def parse_shared_name(text: str) -> SharedName | None:
    """Return the parsed name of a file; None for the name of an unfinished or unrelated file."""
    match = _NAME.fullmatch(text)
    if match is None:
        return None
    kinds = {tag: kind for kind, tag in MESSAGE_TAGS.items()}
    kind = kinds.get(match[3], FrameKind.CALL)
    return SharedName(match[1], int(match[2]), kind, int(match[3]) if kind is FrameKind.CALL else -1)


class SharedSender(Transport):
    """A transport into a shared directory, which holds at most ``disk`` bytes of this sender's calls."""

    trouble = "cannot be written"

    def __init__(self, destination: Destination, outbox: Outbox, hello: dict[str, Any]) -> None:
        assert destination.shared is not None
        super().__init__(destination, outbox, hello)
        self._directory = destination.shared
        self._woken = threading.Event()
        self._unclaimed_sizes: dict[str, int] = {}
        self._tally = "{}"
        self._tally_time = 0.0
        self._hello_time = 0.0

    def wake(self) -> None:
        """Wake the thread, so that it reads the outbox."""
        self._woken.set()

    def abandon(self) -> None:
        """Do nothing: no file stays open between two calls."""
        self._abandoned = True

    def _send_until_stopped(self, welcome: Callable[[], None]) -> None:
        if not self._directory.is_dir():
            raise NotADirectoryError(0, "it is not a directory on this machine", str(self._directory))
        self._write_hello()
        welcome()
        while not self.stopping.is_set():
            if time.monotonic() > self._hello_time + HELLO_INTERVAL_SECONDS:
                self._write_hello()
            self._woken.clear()
            delay = self.outbox.delay
            call = self.outbox.take() if delay == 0 else None
            if call is not None:
                frame = self.encode_call(call)
                if not frame:
                    continue
                while not self._has_room(sum(memoryview(part).nbytes for part in frame)):
                    if self.stopping.wait(FULL_DIRECTORY_POLL_SECONDS):
                        return
                self._write(FrameKind.CALL, frame, call.seq)
                self.outbox.acknowledge([call.seq])
            elif self.outbox.is_closed and self.outbox.is_empty:
                self._write_tally(FrameKind.END)
                return
            else:
                self._write_tally(FrameKind.TALLY)
                self._woken.wait(delay or TALLY_INTERVAL_SECONDS)

    def _write_hello(self) -> None:
        self._write(FrameKind.HELLO, encode_frame(FrameKind.HELLO, self._hello))
        self._hello_time = time.monotonic()

    def _write_tally(self, kind: FrameKind) -> None:
        totals = self.outbox.count_totals()
        text = str(totals["dropped"])
        if kind is FrameKind.END or (
            text != self._tally and time.monotonic() > self._tally_time + TALLY_INTERVAL_SECONDS
        ):
            self._write(kind, encode_frame(kind, totals))
            self._tally, self._tally_time = text, time.monotonic()

    def _has_room(self, size: int) -> bool:
        """Return True if the files that no receiver has claimed yet leave room for ``size`` more bytes."""
        if sum(self._unclaimed_sizes.values()) + size > self._destination.disk:
            present = set(os.listdir(self._directory))  # noqa: PTH208 - names only
            self._unclaimed_sizes = {name: count for name, count in self._unclaimed_sizes.items() if name in present}
        return not self._unclaimed_sizes or sum(self._unclaimed_sizes.values()) + size <= self._destination.disk

    def _write(self, kind: FrameKind, frame: Sequence[Buffer], seq: int = -1) -> None:
        """Write a frame to a file, which gets its final name when it is complete."""
        name = str(SharedName(self._hello["session"], self._hello["rank"], kind, seq))
        part = self._directory / f".{name}.part"
        with suppress(FileNotFoundError):
            part.unlink()
        try:
            with os.fdopen(create_file(part), "wb", buffering=0) as file:
                size = 0
                for buffer in frame:
                    rest = memoryview(buffer).cast("B")
                    size += len(rest)
                    while rest:
                        rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
            part.replace(self._directory / name)
        except BaseException:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            raise
        _sync_directory(self._directory)
        if kind is FrameKind.CALL:
            self._unclaimed_sizes[name] = size


def _sync_directory(directory: Path) -> None:
    """Make a rename durable, if the system supports it."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
