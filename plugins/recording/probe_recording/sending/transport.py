"""The thread that sends a training's calls: its life, its pauses after failures, and its messages."""

from __future__ import annotations

import random
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any

from probe_core.errors import UserError, make_printable
from probe_recording import messages
from probe_recording.sending.message import (
    MAX_JSON_VALUES,
    PREFIX,
    Buffer,
    FrameError,
    FrameLimits,
    count_json_values,
)
from probe_recording.sending.outbox import REASON_RECORDER_ERROR, REASON_TOO_LARGE, Outbox, QueuedCall
from probe_recording.sending.tls import format_connection_error
from probe_recording.settings.destination import Destination

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 60.0
"""Seconds between two attempts, doubled after each failure."""
POLL_SECONDS = 1.0
MAX_REPORTED_FAILURES = 10
"""Different failures that are kept apart until all is well again."""
MAX_HEAD_BYTES = FrameLimits().head


class ReceiverRefusal(Exception):
    """A receiver that does not want the calls of this sender, with its reason."""


class Transport(ABC):
    """A thread that sends what is in an outbox; no failure of it reaches the training.

    Args:
        destination: The receiver.
        outbox: The queue of calls.
        hello: The head of the first frame.

    Attributes:
        done: Set once everything was sent and acknowledged, and the receiver has said so.
        reached: True once the receiver has welcomed this sender, or a file was written.
        refused: The receiver's reason for refusing this sender; None if it did not.
        problem: A sentence on the latest failure; None while all is well.
        verdicts: Numbers of judged calls by status and API, as the receiver told them last.
    """

    trouble = "cannot be reached"

    def __init__(self, destination: Destination, outbox: Outbox, hello: dict[str, Any]) -> None:
        self._destination = destination
        self.outbox = outbox
        self._hello = hello
        self.stopping = threading.Event()
        self._abandoned = False
        self._told: set[str] = set()
        self._attempts = 0
        self._chance = random.Random()  # the training's own random numbers stay as they are
        self._thread = threading.Thread(target=self._run, name="probe-sender", daemon=True)
        self.done = threading.Event()
        self.reached = False
        self.refused: str | None = None
        self.problem: str | None = None
        self.verdicts: dict[str, Counter[str]] = {}
        outbox.on_change = self.wake

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float = 2.0) -> None:
        """End the thread, whatever was not sent."""
        self.stopping.set()
        self.wake()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    @abstractmethod
    def wake(self) -> None:
        """Let the thread look at the outbox; return at once."""

    @abstractmethod
    def abandon(self) -> None:
        """Release whatever a forked child inherited, without a word to the receiver."""

    @abstractmethod
    def _send_until_stopped(self, welcome: Callable[[], None]) -> None:
        """Send until everything is acknowledged or ``stopping`` is set; call ``welcome`` once calls flow.

        Raises:
            Refused: The receiver does not want the calls of this sender.
            OSError: The connection, the directory or a file failed.
            FrameError: The receiver sent something else than frames.
            UserError: A certificate cannot be used.
        """

    def _run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._send_until_stopped(self._note_connection)
                if not self.stopping.is_set():
                    self.done.set()
                return
            except ReceiverRefusal as error:
                self.refused = str(error)
                self.outbox.refused = True
                self._report_failure(f"refuses this training: {error}", lasting=True)
            except (OSError, FrameError, EOFError) as error:
                self._report_failure(
                    f"{self.trouble}: {format_connection_error(error)}", lasting=isinstance(error, ssl.SSLError)
                )
            except UserError as error:
                self._report_failure(f"{self.trouble}: {error.what} {error.fix}", lasting=True)
            except Exception as error:  # the training must go on whatever the error
                self._report_failure(f"{self.trouble}: {type(error).__name__}: {error}")
            if self._abandoned:
                return
            self.outbox.requeue_sent_calls()
            pause = min(MAX_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2**self._attempts)
            self._attempts = min(self._attempts + 1, 20)
            self._pause(pause * self._chance.uniform(0.8, 1.2))  # many ranks must not return all at once

    def _pause(self, pause: float) -> None:
        """Wait before the next attempt; at the end of the process no longer than a moment."""
        end = time.monotonic() + pause
        while (left := end - time.monotonic()) > 0 and not self.stopping.wait(min(left, POLL_SECONDS)):
            if self.outbox.is_closed:
                return

    def encode_call(self, call: QueuedCall) -> list[Buffer]:
        """Return the frame of a call; an empty list, after dropping the call, if it cannot be encoded."""
        try:
            frame = call.create_frame(self._hello["rank"])
            body = sum(memoryview(part).nbytes for part in frame[1:])
            values = count_json_values(frame[0], PREFIX.size)
            if body > self.outbox.most_body or len(frame[0]) > MAX_HEAD_BYTES or values > MAX_JSON_VALUES:
                self.outbox.give_up(call.seq, REASON_TOO_LARGE)  # the receiver would end the connection
                return []
            return frame
        except Exception as error:  # one call that cannot be sent must not keep back the others
            messages.note(f"probe: {call.name} of step {call.step} cannot be sent: {error}")
            self.outbox.give_up(call.seq, REASON_RECORDER_ERROR)
            return []

    def _note_connection(self) -> None:
        self._attempts = 0
        self.reached = True
        self.problem = self.refused = None
        self.outbox.refused = False
        if self._told:
            self._told.clear()
            messages.note(f"probe: calls are sent to {self._destination} again.")

    def _report_failure(self, sentence: str, *, lasting: bool = False) -> None:
        """Note a failure, and say it once until all is well again.

        After the first one those alone are said that do not pass by themselves, such as a wrong certificate.
        """
        self.problem = make_printable(sentence)
        if (
            self._abandoned
            or self.stopping.is_set()
            or sentence in self._told
            or len(self._told) == MAX_REPORTED_FAILURES
        ):
            return
        if not self._told:
            waits = f"calls wait in memory (at most {self.outbox.most_memory >> 20:,} MiB) until it answers"
            further = "further calls" if self.refused else f"{waits}, further ones"
            messages.note(
                f"probe: {self._destination} {sentence.rstrip('.')}. The training goes on; {further} are "
                "dropped and counted."
            )
        elif lasting:
            messages.note(f"probe: {self._destination} {sentence.rstrip('.')}.")
        self._told.add(sentence)
