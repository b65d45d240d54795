"""Start, messages and end of a worker process, on the side of its parent.

The parent never waits for a process that hangs: it sends and receives only as many bytes as the process accepts or
provides.
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
from multiprocessing import forkserver, reduction
from typing import Any, NamedTuple, cast

from probe_ranks.processes import hold_interrupts, isolate_start, start_resource_tracker

from probe_core.errors import make_printable
from probe_precheck.worker_process import LENGTH, MessageKind, WorkerMessage, serve

RECEIVE_BYTES = 256 * 1024
"""Bytes that are read at a time, about the size of a socket's buffer."""

TAIL_BYTES = 4096
"""Bytes at the end of a process's output in which its last line is looked for."""

END_TIMEOUT_SECONDS = 5.0
"""Seconds that the parent waits for a process that is ending, or that was killed."""


class ProcessExit(NamedTuple):
    """End of a process: the reason (empty if the parent killed it), and the last line that it printed."""

    reason: str
    last_line: str


class Log:
    """Unnamed file for the output of a process, which receives its file descriptor at its start."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115
        handle = self._file.fileno()
        fcntl.fcntl(handle, fcntl.F_SETFL, fcntl.fcntl(handle, fcntl.F_GETFL) | os.O_APPEND)

    def __reduce__(self) -> tuple[Any, ...]:
        return _detach, (reduction.DupFd(self._file.fileno()),)

    def clear(self) -> None:
        """Discard the output so far."""
        self._file.truncate(0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def last_line(self) -> str:
        """Return the last line that is not blank; an empty text if there is no such line."""
        if self._file.closed:
            return ""
        size = os.fstat(self._file.fileno()).st_size
        tail = os.pread(self._file.fileno(), TAIL_BYTES, max(0, size - TAIL_BYTES))
        lines = [line.strip() for line in tail.decode(errors="replace").splitlines()]
        return make_printable(next((line for line in reversed(lines) if line), ""))


def _detach(duplicate: Any) -> int:
    return cast(int, duplicate.detach())


class Worker:
    """Worker process, as its parent sees it.

    Attributes:
        slot: The number that its setup is called with.
        is_set_up: True once the process has reported that it is set up.
        job: The job that it runs; None before the first.
        channel: The socket to it.
        deadline: The time of ``time.monotonic`` at which the worker is late to send or receive data.
        is_gone: True if it has ended or is ending.
    """

    def __init__(self, context: Any, slot: int, variables: Mapping[str, str]) -> None:
        self.slot = slot
        self.is_set_up = False
        self.job: Any = None
        self.is_gone = False
        self.deadline = 0.0
        self.channel, self._child_channel = socket.socketpair()
        self.channel.setblocking(False)
        self._log = Log()
        self._limit = 0.0
        self._unsent = bytearray()
        self._received = bytearray()
        self._is_forked = context.get_start_method() == "forkserver"
        self._is_closed = False
        self._process = context.Process(
            target=serve, args=(self._child_channel, self._log, variables), name=f"probe-{slot}", daemon=True
        )

    def start(self) -> None:
        """Start the process.

        Ctrl-C reaches every process of the terminal. Processes that are starting ignore it.

        Raises:
            OSError: The system has no memory, file or process left.
            EOFError: The server that forks it has died.
        """
        start_resource_tracker()
        with isolate_start():
            if self._is_forked:
                with hold_interrupts():
                    forkserver.ensure_running()
                self._process.start()  # waits for the server, which may have much to import
            else:
                with hold_interrupts():
                    self._process.start()
        self._child_channel.close()

    @property
    def sentinel(self) -> int:
        """Handle that becomes readable when the process, which must have started, ends."""
        return cast(int, self._process.sentinel)

    # -- messages ----------------------------------------------------------------------------------

    @property
    def events(self) -> int:
        """Events to wait for at the channel: an answer, and room for data that are not sent yet."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    def begin(self, job: Any, data: bytes, limit: float) -> None:
        """Send a job as ``send`` does, and discard the output of earlier jobs."""
        self.job = job
        self._log.clear()
        self.send(data, limit)

    def send(self, data: bytes, limit: float) -> None:
        """Send a pickle. The process must answer within ``limit`` seconds after it received the pickle."""
        self._limit = limit
        self._unsent += LENGTH.pack(len(data)) + data
        self._renew_deadline()
        self.flush()

    def flush(self) -> None:
        """Send as many bytes as the process accepts."""
        try:
            while self._unsent:
                del self._unsent[: self.channel.send(self._unsent)]
                self._renew_deadline()
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True

    def receive(self) -> WorkerMessage | None:
        """Return the answer once it is complete; None until then."""
        try:
            while (answer := self._take_answer()) is None:
                part = self.channel.recv(RECEIVE_BYTES)
                if not part:
                    self.is_gone = True
                    break
                self._received += part
                self._renew_deadline()
        except BlockingIOError:
            pass
        except OSError:
            self.is_gone = True
        return answer

    def _renew_deadline(self) -> None:
        """Set the deadline again after the process sent or received data."""
        self.deadline = time.monotonic() + self._limit

    def _take_answer(self) -> WorkerMessage | None:
        start = LENGTH.size + 1
        if len(self._received) < start:
            return None
        end = LENGTH.size + LENGTH.unpack_from(self._received)[0]
        if len(self._received) < end:
            return None
        answer = WorkerMessage(MessageKind(self._received[LENGTH.size]), bytes(memoryview(self._received)[start:end]))
        del self._received[:end]
        return answer

    # -- the end -----------------------------------------------------------------------------------

    def dismiss(self) -> None:
        """Close the channel, so that the process ends by itself."""
        self.channel.close()

    def kill(self) -> None:
        """Kill the process and its child processes, without waiting for their end."""
        if self._is_running and self._process.exitcode is None:
            with contextlib.suppress(OSError):  # the process has not created its group yet
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()

    def end(self, patience: float = 0.0) -> ProcessExit:
        """Wait until the process ends, and kill it after ``patience`` seconds."""
        self.channel.close()
        self._child_channel.close()
        exit_reason = ""
        if self._is_running:
            if patience:
                self._process.join(patience)
            if self._process.exitcode is not None:
                exit_reason = _describe_exit(self._process.exitcode)
            self.kill()
            self._process.join(END_TIMEOUT_SECONDS)
            self._is_closed = True
            with contextlib.suppress(ValueError):  # the process hangs in the kernel, where a kill has no effect yet
                self._process.close()
        line = self._log.last_line()
        self._log.close()
        return ProcessExit(exit_reason, line)

    @property
    def _is_running(self) -> bool:
        return not self._is_closed and self._process.pid is not None


def _describe_exit(code: int) -> str:
    if code == -signal.SIGKILL:
        return "its process was killed (signal 9), often because of a lack of memory"
    if code < 0:
        name = signal.strsignal(-code) or "unknown"
        return f"its process ended by signal {-code} ({name.lower()})"
    return f"its process ended with exit code {code}"
