"""Shared directory of a receiver: files of calls in, nothing out (docs/online.md#with-a-shared-directory).

A file is claimed by renaming it, so that several receivers may share one directory, and removed when its rows
are written. Nothing here relies on locks, on the clocks of other machines, or on a current listing: a
file that is not listed yet is found by a later look.
"""

from __future__ import annotations

import errno
import math
import os
import re
import socket
import stat
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import xxhash
from probe_recording.sending.message import (
    PREFIX,
    Frame,
    FrameError,
    FrameKind,
    FrameLimits,
    SentCall,
    get_counts,
    get_number,
    get_numbers,
    get_session,
    get_text,
    parse_call,
    parse_frame_file,
    parse_prefix,
)
from probe_recording.sending.shared import SharedName, parse_shared_name

from probe_core.errors import UserError, format_count, make_printable
from probe_core.files.atomic import open_file, write_text
from probe_online.desk import Desk
from probe_online.judging import RemovalCounts, SenderPlace, SentPayload, find_senders_with_calls, remove_aged
from probe_online.ledger import MAX_SESSIONS
from probe_online.settings import MESSAGE_LIMITS, ReceiverSettings

POLL_SECONDS = 0.3
ABANDONED_SECONDS = 600.0
"""Seconds after which a file that another receiver has claimed is taken over."""
MAX_DAMAGED_READS = 10
"""Looks at a damaged file before it is set aside, since a file system may show it in parts at first."""
AGE_CHECK_SECONDS = 3600.0
"""Seconds between two looks for files that are older than the age limit."""
DAMAGED_DIRECTORY = "set_aside"
_PERMISSION_ERRORS = (errno.EROFS, errno.EACCES, errno.EPERM)
_CLAIMED_NAME = re.compile(r"\.(.+\.prb)\.([0-9a-f]{16})\.work")
_SETTLED_NAME = re.compile(r"\.([0-9a-f]{32})\.r(\d{1,7})\.([0-9a-f]{16})\.settled")


class Watcher:
    """Thread that looks into a shared directory.

    Args:
        order: The limits.
        directory: The directory.
        framework: The framework of the trainings whose calls are judged.
        desk: The desk that takes calls.
    """

    def __init__(self, order: ReceiverSettings, directory: Path, framework: str, desk: Desk) -> None:
        self._order = order
        self._directory = directory
        self._framework = framework
        self._desk = desk
        home = f"{socket.gethostname()}:{desk.ledger.path.resolve()}"
        self._own = xxhash.xxh3_64_hexdigest(home.encode())  # the same when this receiver is started again
        self._limits = FrameLimits(body=order.most_body)
        self._thread = threading.Thread(target=self._run, name="probe-watcher", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._bytes = self._calls = 0
        self._senders: dict[tuple[str, int], bool] = {}
        self._read: dict[str, tuple[int, int]] = {}
        self._foreign: dict[str, float] = {}
        self._damaged: dict[str, int] = {}
        self._told: dict[tuple[str, int], int] = {}
        self._earlier: set[tuple[str, int]] = set()
        self._swept = -math.inf

    def start(self) -> str:
        """Look for the first time; return the directory as text.

        Raises:
            UserError: The directory cannot be read or written.
        """
        try:
            names = os.listdir(self._directory)  # noqa: PTH208 - names only
            if not os.access(self._directory, os.W_OK):
                raise PermissionError(13, "it cannot be written to, so that no file can be claimed")
        except OSError as error:
            raise UserError(
                f'"{self._directory}" cannot be watched: {error.strerror or error}.',
                "Give a directory that both machines can write to.",
            ) from None
        for name in names:
            match = _CLAIMED_NAME.fullmatch(name)
            if match is not None and match[2] == self._own:  # claimed before this receiver was killed
                with suppress(OSError):
                    (self._directory / name).rename(self._directory / match[1])
        self._tell_removed(remove_aged(self._directory, self._order.days, find_senders_with_calls(names)))
        self._earlier = self._complete(os.listdir(self._directory))  # noqa: PTH208
        if self._earlier:
            senders = format_count(len(self._earlier), "sender")
            self._desk.add_sentence(f"{self._directory} was used before: {senders} left nothing to judge.")
        self._thread.start()
        return str(self._directory)

    def stop(self) -> None:
        """End the thread, and give back what was claimed and not judged."""
        self._stopping.set()
        self._thread.join(5.0)
        with suppress(OSError):
            self._tell()

    # -- looking -----------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self._look(os.listdir(self._directory))  # noqa: PTH208
                self._tell()
                self._remove_aged()
            except OSError as error:
                self._desk.add_sentence(f'"{self._directory}" cannot be read: {error.strerror or error}.')
            except UserError as error:
                self._desk.add_sentence(error.what)

    def _remove_aged(self) -> None:
        """Remove what is older than the age limit, once an hour; what is judged here stays until it is."""
        if time.monotonic() > self._swept + AGE_CHECK_SECONDS:
            self._swept = time.monotonic()
            judged = {SenderPlace(*place) for place, is_accepted in self._senders.items() if is_accepted}
            self._tell_removed(remove_aged(self._directory, self._order.days, judged))

    def _tell_removed(self, removed: RemovalCounts) -> None:
        if removed.files:
            lost = f", {format_count(removed.calls, 'call')} among them that nobody judged" if removed.calls else ""
            files = format_count(removed.files, "file")
            self._desk.add_sentence(
                f"{files} of trainings that wrote nothing for {self._order.days:g} days removed from "
                f"{self._directory}{lost}."
            )

    def _look(self, names: Iterable[str]) -> None:
        calls: list[SharedName] = []
        others: list[SharedName] = []
        elsewhere: dict[tuple[str, int], int] = {}
        for name in names:
            parsed = parse_shared_name(name)
            if parsed is not None:
                (calls if parsed.kind is FrameKind.CALL else others).append(parsed)
            elif (match := _CLAIMED_NAME.fullmatch(name)) is not None:
                self._take_over(name, match[1], match[2])
            elif (match := _SETTLED_NAME.fullmatch(name)) is not None:
                place = match[1], int(match[2])
                if match[3] != self._own and place not in self._earlier:
                    elsewhere[place] = elsewhere.get(place, 0) + self._number(name)
            elif name.endswith(".prb") and not name.startswith("."):
                self._set_aside(name, "its name is not one that a sender of probe gives")
        for (session, rank), number in elsewhere.items():
            self._desk.ledger.note_settled_elsewhere(rank, session, number)
        for parsed in sorted(others, key=lambda name: name.kind):  # HELLO before the others
            self._read_message_file(parsed)
        for parsed in sorted(calls, key=lambda name: name.seq):
            if self._stopping.is_set():
                return
            if self._senders.get((parsed.session, parsed.rank)) and not self._call(parsed):
                return

    def _complete(self, names: Iterable[str]) -> set[tuple[str, int]]:
        """Return the senders that have ended and of which nothing is left, but for those of this receiver."""
        settled: dict[tuple[str, int], int] = {}
        ended = []
        for name in names:
            parsed = parse_shared_name(name)
            if parsed is not None and parsed.kind is FrameKind.END:
                ended.append(parsed)
            elif (match := _SETTLED_NAME.fullmatch(name)) is not None:
                place = match[1], int(match[2])
                settled[place] = settled.get(place, 0) + self._number(name)
        local_counts, complete = self._desk.ledger.count_settled(), set()
        for sender in ended:
            frame = self._read_frame(str(sender), MESSAGE_LIMITS)
            if frame is None or (sender.rank, sender.session) in local_counts:
                continue
            with suppress(FrameError):
                if sum(get_counts(frame.head, "queued").values()) <= settled.get((sender.session, sender.rank), 0):
                    complete.add((sender.session, sender.rank))
        return complete

    def _read_message_file(self, parsed: SharedName) -> None:
        """Read a file that is not a call, if it has changed."""
        if (parsed.session, parsed.rank) in self._earlier:
            return
        name = str(parsed)
        try:
            state = (self._directory / name).stat()
        except OSError:
            return
        if self._read.get(name) == (state.st_mtime_ns, state.st_size):
            return
        frame = self._read_frame(name, MESSAGE_LIMITS)
        if frame is None:
            return
        self._read[name] = state.st_mtime_ns, state.st_size
        place = parsed.session, parsed.rank
        try:
            if frame.kind is not parsed.kind:
                raise FrameError(f"it holds {frame.kind.name}")
            if frame.kind is FrameKind.HELLO:
                self._greet(frame, parsed)
            elif self._senders.get(place):
                queued, dropped = (get_counts(frame.head, key) for key in ("queued", "dropped"))
                ended = frame.kind is FrameKind.END
                self._desk.ledger.tally(parsed.rank, parsed.session, queued, dropped, ended=ended)
                self._desk.ledger.note_disconnect(parsed.rank, parsed.session)
            else:
                del self._read[name]  # its first message is not listed yet
        except FrameError as error:
            self._set_aside(name, str(error))

    def _greet(self, frame: Frame, parsed: SharedName) -> None:
        rank, framework = get_number(frame.head, "rank"), get_text(frame.head, "framework", 40)
        if rank != parsed.rank or get_session(frame.head) != parsed.session:
            raise FrameError("its name says another sender than it does")
        ranks = self._order.ranks
        why = ""
        if framework != self._framework:
            why = f"its calls are of {framework}, this receiver judges those of {self._framework}"
        elif ranks is not None and rank not in ranks:
            why = f"rank {rank} is not in the receiver's rank_list"
        elif not self._desk.ledger.has_room_for(rank, parsed.session):
            why = f"{MAX_SESSIONS:,} sessions have been judged, which is the limit of a receiver"
        self._senders[parsed.session, rank] = not why
        if why:
            self._desk.refuse(f"Calls of {parsed.session[:8]} (rank {rank}) are left where they are: {why}.")
            return
        self._desk.greet(rank, parsed.session, get_numbers(frame.head, "ranks"))
        self._desk.ledger.note_disconnect(rank, parsed.session)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, parsed: SharedName) -> bool:
        """Claim, read and hand on a call; return False if there is no room for it."""
        try:
            size = (self._directory / str(parsed)).stat().st_size
        except OSError:
            return True
        with self._lock:
            if self._calls and (self._calls >= self._order.calls or self._bytes + size > self._order.window):
                return False
            self._calls += 1
            self._bytes += size
        is_taken = False
        try:
            is_taken = self._take_call(parsed, size)
        finally:
            if not is_taken:
                self._release(size)
        return True

    def _release(self, size: int) -> None:
        with self._lock:
            self._calls -= 1
            self._bytes -= size

    def _take_call(self, parsed: SharedName, size: int) -> bool:
        """Claim, read and hand on a call that has room; return False if it was not taken."""
        name = str(parsed)
        claimed = self._directory / f".{name}.{self._own}.work"
        if not self._claim(name, claimed):
            return False
        content = self._read_content(claimed.name, self._limits)
        if content is None:
            with suppress(OSError):
                claimed.rename(self._directory / name)
            return False
        try:
            call = self._parse_call(content, parsed)
        except FrameError as error:
            with suppress(OSError):
                claimed.rename(self._directory / name)
            self._count_damaged_read(name, str(error))
            return False

        def settle(earlier: bool) -> None:
            with suppress(OSError):
                claimed.unlink()
            self._desk.ledger.settle(parsed.rank, parsed.session, call.seq, earlier=earlier)
            self._release(size)

        call.fields.clear()  # they are parsed again by the process that judges the call
        payload = SentPayload(content, PREFIX.size, PREFIX.size + parse_prefix(content).head)
        self._desk.ledger.note_disconnect(parsed.rank, parsed.session)
        return self._desk.take(parsed.session, call, payload, settle)

    def _claim(self, name: str, claimed: Path) -> bool:
        """Rename a file so that no other receiver reads it; return False if this fails."""
        try:
            (self._directory / name).rename(claimed)
        except OSError as error:
            if error.errno in _PERMISSION_ERRORS:
                self._desk.add_sentence(
                    f'Files in "{self._directory}" cannot be claimed: {error.strerror}; they wait there.'
                )
            return False  # or another receiver was quicker, or it is not there yet
        return True

    def _parse_call(self, content: bytes, parsed: SharedName) -> SentCall:
        frame = parse_frame_file(content, self._limits)
        call = parse_call(frame)
        if frame.kind is not FrameKind.CALL or (call.rank, call.seq) != (parsed.rank, parsed.seq):
            raise FrameError("its name says another call than it holds")
        return call

    def _count_damaged_read(self, name: str, why: str) -> None:
        """Set a damaged file aside after some looks."""
        self._damaged[name] = self._damaged.get(name, 0) + 1
        if self._damaged[name] >= MAX_DAMAGED_READS:
            del self._damaged[name]
            self._set_aside(name, why)

    def _take_over(self, name: str, original_name: str, receiver: str) -> None:
        """Give back a file that another receiver claimed and has not judged for a long time."""
        if receiver == self._own:
            return
        first = self._foreign.setdefault(name, time.monotonic())
        if time.monotonic() - first > ABANDONED_SECONDS:
            del self._foreign[name]
            with suppress(OSError):
                (self._directory / name).rename(self._directory / original_name)

    # -- files -------------------------------------------------------------------------------------

    def _read_frame(self, name: str, limits: FrameLimits) -> Frame | None:
        content = self._read_content(name, limits)
        if content is None:
            return None
        try:
            return parse_frame_file(content, limits)
        except FrameError as error:
            self._count_damaged_read(name, str(error))
            return None

    def _read_content(self, name: str, limits: FrameLimits) -> bytes | None:
        """Return the bytes of a regular file; None if it is none, is too large, or cannot be read now."""
        try:
            descriptor = open_file(self._directory / name, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except (OSError, UserError) as error:
            if isinstance(error, UserError):
                self._count_damaged_read(name, "it is a link")
            return None
        with os.fdopen(descriptor, "rb") as file:
            state = os.fstat(file.fileno())
            most = PREFIX.size + limits.head + limits.body
            if not stat.S_ISREG(state.st_mode) or state.st_size > most:
                self._count_damaged_read(name, f"it is no regular file of at most {most:,} bytes")
                return None
            with suppress(OSError):
                return file.read(most + 1)
        return None

    def _set_aside(self, name: str, why: str) -> None:
        """Move a file into a subdirectory, with the reason beside it."""
        aside = self._directory / DAMAGED_DIRECTORY
        with suppress(OSError):
            aside.mkdir(exist_ok=True)
            (self._directory / name).rename(aside / name)
            self._desk.refuse(f"{name} was set aside in {aside}: {why}.")
            with suppress(UserError):
                write_text(aside / f"{name}.reason.txt", f"{make_printable(why, 400)}\n")

    def _tell(self) -> None:
        """Tell other receivers of this directory how many calls were settled here."""
        for (rank, session), number in self._desk.ledger.count_settled().items():
            if self._told.get((session, rank)) == number or (session, rank) not in self._senders:
                continue
            path = self._directory / f".{session}.r{rank}.{self._own}.settled"
            write_text(path, str(number))
            self._told[session, rank] = number

    def _number(self, name: str) -> int:
        try:
            return int((self._directory / name).read_text("utf-8")[:20])
        except (OSError, ValueError):
            return 0
