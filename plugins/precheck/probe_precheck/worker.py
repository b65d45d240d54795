"""The parent's hold on one process of the supervisor: what it is told, what it says, and how it ends.

Nothing here waits for a process that is stuck: messages come and go in the parts that it takes and gives.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import signal
import socket
import tempfile
import time
from collections.abc import Mapping
from multiprocessing import forkserver, reduction, resource_tracker
from typing import Any, NamedTuple, cast

from probe_core.errors import printable
from probe_core.ranks import processes
from probe_precheck.worker_process import LENGTH, Answer, Says, serve

PART = 256 * 1024
"""Bytes read at a time, about what a socket holds."""

TAIL = 4096
"""Bytes of a process's output that are looked at."""

ENDING = 5.0
"""Seconds that a process which is about to end is waited for, and one that was killed."""


class Ending(NamedTuple):
    """How a process ended by itself, empty where it was killed by us; and the last line that it printed."""

    how: str
    last_line: str


class Log:
    """An unnamed file for what a process prints. The process gets it as a file descriptor when it starts."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        handle = self._file.fileno()
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)

    def __reduce__(self) -> tuple[Any, ...]:
        return _taken, (reduction.DupFd(self._file.fileno()),)

    def clear(self) -> None:
        """Forget what was printed so far."""
        self._file.truncate(0)

    def close(self) -> None:
        """Let the file go."""
        self._file.close()

    def last_line(self) -> str:
        """The last line with anything on it; empty where there is none."""
        if self._file.closed:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        tail = os.pread(self._file.fileno(), TAIL, max(0, size - TAIL))
        lines = [line.strip() for line in tail.decode(errors="replace").splitlines()]
        return printable(next((line for line in reversed(lines) if line), ""))


def _taken(duplicate: Any) -> int:
    return cast(int, duplicate.detach())


class Worker:
    """The parent's hold on one process.

    Attributes:
        slot: The number that its setup is called with.
        is_set_up: It has said that it is.
        job: What it is at; None before the first.
        channel: Its line, where answers come from.
        deadline: When it will have been silent for too long, on ``time.monotonic``'s clock.
        is_gone: It has ended, or is about to.
    """

    def __init__(self, context: Any, slot: int, variables: Mapping[str, str]) -> None:
        self.slot = slot
        self.is_set_up = False
        self.job: Any = None
        self.is_gone = False
        self.deadline = 0.0
        self.channel, self._its_channel = socket.socketpair()
        self.channel.setblocking(False)
        self._log = Log()
        self._limit = 0.0
        self._unsent = bytearray()
        self._received = bytearray()
        self._is_forked = context.get_start_method() == "forkserver"
        self._is_closed = False
        self._process = context.Process(
            target=serve, args=(self._its_channel, self._log, variables), name=f"probe-{slot}", daemon=True
        )

    def start(self) -> None:
        """Start the process.

        Ctrl-C, which every process at the terminal gets, is no concern of those that are only starting.

        Raises:
            OSError: There is no memory, file or process left for it.
            EOFError: The server that forks it died.
        """
        resource_tracker.ensure_running()  # now: as it starts, it lets Ctrl-C in
        with processes.hidden_main():
            if self._is_forked:
                with processes.interrupts_held():
                    forkserver.ensure_running()
                self._process.start()  # waits for the server, which may have much to import
            else:
                with processes.interrupts_held():
                    self._process.start()
        self._its_channel.close()

    @property
    def sentinel(self) -> int:
        """What becomes readable when the process, which must have started, ends."""
        return cast(int, self._process.sentinel)

    # -- messages ----------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """What to wait for at the channel: an answer, and room for what is not sent yet."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def begin(self, job: Any, data: bytes, limit: float) -> None:
        """Send a job as ``send`` does; what was printed so far belongs to those before."""
        self.job = job
        self._log.clear()
        self.send(data, limit)

    def send(self, data: bytes, limit: float) -> None:
        """Send a pickle, to be answered within ``limit`` seconds from when the process has all of it."""
        self._limit = limit
        self._unsent += LENGTH.pack(len(data)) + data
        self._hear()
        self.flush()

    def flush(self) -> None:
        """Send what the process has room for."""
        try:
            while self._unsent:
                del self._unsent[: self.channel.send(self._unsent)]
                self._hear()
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True

    def receive(self) -> Answer | None:
        """The answer, once all of it is there."""
        try:
            while (answer := self._whole()) is None:
                part = self.channel.recv(PART)
                if not part:
                    self.is_gone = True
                    break
                self._received += part
                self._hear()
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True
        return answer

    def _hear(self) -> None:
        """The process shows that it is not stuck; its time begins anew."""
        self.deadline = time.monotonic() + self._limit

    def _whole(self) -> Answer | None:
        start = LENGTH.size + 1
        if len(self._received) < start:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        answer = Answer(Says(self._received[LENGTH.size]), bytes(memoryview(self._received)[start:end]))
        del self._received[:end]
        return answer

    # -- the end -----------------------------------------------------------------------------------

    def dismiss(self) -> None:
        """Let the process end by itself."""
        self.channel.close()

    def kill(self) -> None:
        """Kill the process with all that it started, and do not wait for it."""
        if self._is_there and self._process.exitcode is None:
            with contextlib.suppress(OSError):  # it has no group of its own yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def end(self, patience: float = 0.0) -> Ending:
        """See the process end, killed after ``patience`` seconds."""
        self.channel.close()
        self._its_channel.close()
        how = ""
        if self._is_there:
            if patience:
                self._process.join(patience)
            if self._process.exitcode is not None:
                how = _ending(self._process.exitcode)
            self.kill()
            self._process.join(ENDING)
            self._is_closed = True
            with contextlib.suppress(ValueError):  # it hangs in the kernel, which even a kill waits for
                self._process.close()
        line = self._log.last_line()
        self._log.close()
        return Ending(how, line)

    @property
    def _is_there(self) -> bool:
        return not self._is_closed and self._process.pid is not None


def _ending(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed (signal 9), often for want of memory"
    if code < 0:
        name = signal.strsignal(-code) or "unknown"
        return f"its process ended by signal {-code} ({name.lower()})"
    return f"its process ended with exit code {code}"
