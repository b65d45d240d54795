"""The sender of one process: its outbox, its transport, and its end."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from probe_core.errors import UserError
from probe_core.files.atomic import write_text
from probe_recording import messages
from probe_recording.sending.message import PROTOCOL
from probe_recording.sending.outbox import Counts, Outbox, format_largest
from probe_recording.sending.shared import SharedSender
from probe_recording.sending.tcp import TcpSender
from probe_recording.sending.tls import create_sender_context
from probe_recording.sending.transport import Transport
from probe_recording.sessions.loss import format_steps
from probe_recording.settings.config import Config
from probe_recording.settings.destination import Destination

VERSION = 1


@dataclass(frozen=True, slots=True)
class SendingSummary:
    """The end of one rank's calls: acknowledged, dropped, or without an answer.

    Attributes:
        destination: The receiver.
        session: The session, which the receiver's files name too.
        rank: The rank.
        steps: The steps of which calls were queued.
        counts: Numbers of calls.
        waiting: Calls that were queued and not acknowledged, by API.
        verdicts: Numbers of judged calls by status and API, if the receiver told them.
        problem: A sentence on the last failure; None if there is none.
    """

    destination: Destination
    session: str
    rank: int
    steps: tuple[int, ...]
    counts: Counts
    waiting: Counter[str]
    verdicts: dict[str, Counter[str]]
    problem: str | None

    @property
    def is_complete(self) -> bool:
        """True if every call was acknowledged and none dropped."""
        return not self.waiting and not self.counts.dropped_by_api

    def text(self) -> str:
        """Return the JSON of the summary."""
        counts = self.counts
        value: dict[str, Any] = {
            "version": VERSION,
            "session": self.session,
            "rank": self.rank,
            "receiver": str(self.destination),
            "steps": list(self.steps),
            "complete": self.is_complete,
            "queued": counts.queued,
            "stored" if self.destination.shared else "acknowledged": counts.acknowledged,
            "dropped": counts.dropped,
            "not_acknowledged": self.waiting,
            "sent_again": counts.resent,
            "verdicts": self.verdicts,
            "problem": self.problem,
        }
        return json.dumps(value, indent=1) + "\n"

    def iterate_lines(self) -> Iterable[str]:
        """Yield the sentences of the summary."""
        counts = self.counts
        queued, dropped = counts.queued.total(), counts.dropped_by_api.total()
        if not queued and not dropped:
            yield f"probe: rank {self.rank} made no call to be sent to {self.destination}."
            return
        done = "stored in" if self.destination.shared else "acknowledged by"
        steps = f" of {format_steps(self.steps)}" if self.steps else ""
        calls = f"{counts.acknowledged.total():,} of {queued + dropped:,} calls of rank {self.rank}{steps}"
        yield f"probe: {calls} were {done} {self.destination}."
        if self.verdicts:
            shown = ", ".join(f"{counts.total():,} {status}" for status, counts in self.verdicts.items())
            yield f"probe: the receiver's verdicts on rank {self.rank}: {shown}."
        for reason, by_api in counts.dropped.items():
            yield f"probe: calls dropped and not judged ({reason}): {by_api.total():,} ({format_largest(by_api)})."
        if self.waiting:
            why = f" {self.destination} {self.problem}." if self.problem else ""
            yield (
                "probe: calls that were not acknowledged, so that it is not known whether they were judged: "
                f"{self.waiting.total():,} ({format_largest(self.waiting)}).{why}"
            )


NOTICE_DELAY_SECONDS = 1.0
"""Seconds of waiting at the end of the process before a line says so."""
CONFIRMATION_SECONDS = 10.0
"""Seconds that the receiver may take to confirm the end after it has acknowledged everything."""
POLL_SECONDS = 0.2
UNREACHED_WAIT_SECONDS = 30.0
"""Seconds of waiting at most for a receiver that never answered."""


class Sender:
    """The sender of one rank's calls, from the first step to the end of the process.

    Args:
        destination: The receiver.
        rank: The rank of this process.
        framework: The name of the framework.
        versions: Versions of probe and the framework.
        ranks: The ranks of the training that send; empty if that is not known.

    Attributes:
        outbox: The queue of calls.
        steps: The steps that have begun.

    Raises:
        UserError: A certificate cannot be used, or there is no shared directory.
    """

    def __init__(
        self,
        destination: Destination,
        rank: int,
        framework: str,
        versions: Mapping[str, str],
        ranks: Sequence[int] = (),
    ) -> None:
        if destination.tls is not None and destination.shared is None:
            create_sender_context(destination.tls)  # wrong files are an error before the training begins
        if destination.shared is not None and not destination.shared.is_dir():
            raise UserError(
                f'There is no directory "{destination.shared}" on this machine to send calls through.',
                "Make or mount the shared directory (nfs_path, or --send-to) before the training begins.",
            )
        self._destination = destination
        self._process = os.getpid()
        self._session = uuid.uuid4().hex
        self._rank = rank
        self.outbox = Outbox(destination.memory, destination.policy == "wait", destination.wait)
        self.steps: list[int] = []
        self.summary: SendingSummary | None = None
        hello = {
            "version": PROTOCOL,
            "session": self._session,
            "rank": rank,
            "framework": framework,
            "versions": dict(versions),
            "ranks": list(ranks),
        }
        kind = TcpSender if destination.shared is None else SharedSender
        self._transport: Transport = kind(destination, self.outbox, hello)
        if destination.is_exposed and not destination.consented:
            messages.note(
                f"probe: WARNING: the tensors of this training travel to {destination} in PLAIN TEXT, which "
                'everyone on the way can read; set "tls_path" to encrypt them.'
            )
        self._transport.start()

    @classmethod
    def from_config(cls, config: Config, label: str, size: int, framework: str, versions: Mapping[str, str]) -> Sender:
        """Return the sender of the process whose directories are called ``label``, such as ``rank0``.

        Args:
            config: The settings of the recording.
            label: The label.
            size: The number of processes of the training.
            framework: The name of the framework.
            versions: Versions of the framework and its parts.
        """
        assert config.online is not None
        rank = int("".join(filter(str.isdecimal, label)) or 0)
        ranks = [number for number in range(size) if not config.ranks or number in config.ranks]
        return cls(config.online, rank, framework, {"probe": version("probe-core"), **versions}, ranks)

    def begin_step(self, step: int) -> None:
        """Note a new step, in which the training may wait again."""
        self.steps.append(step)
        self.outbox.begin_step()

    @property
    def is_complete(self) -> bool:
        """True if the end was reached and nothing was dropped or left without an answer."""
        return self.summary is not None and self.summary.is_complete

    def abandon(self) -> None:
        """Send nothing from a forked child."""
        self._transport.abandon()

    def finish(self, directory: Path) -> SendingSummary | None:
        """Wait until everything is acknowledged, at most the time allowed, and say what was not.

        Ctrl-C ends the wait. Nothing is raised.

        Args:
            directory: The directory for ``online_rank{r}.json``.
        """
        if os.getpid() != self._process or self.summary is not None:
            return self.summary
        self.outbox.close()
        try:
            self._wait()
        except KeyboardInterrupt:
            messages.note("probe: interrupted; what is not acknowledged yet is given up.")
        self._transport.stop()
        self.summary = self._create_summary()
        for line in self.summary.iterate_lines():
            messages.note(line)
        try:
            write_text(directory / f"online_rank{self._rank}.json", self.summary.text())
        except (OSError, UserError) as error:
            messages.note(f"probe: the summary of what was sent cannot be written: {error}")
        return self.summary

    def _wait(self) -> None:
        """Wait for the transport; a line says so after a moment."""
        transport, begin = self._transport, time.monotonic()
        most = self._destination.drain if transport.reached else min(self._destination.drain, UNREACHED_WAIT_SECONDS)
        has_reported = False
        while not transport.done.wait(POLL_SECONDS):
            passed = time.monotonic() - begin
            most = self._destination.drain if transport.reached else most
            if passed > most or transport.refused:
                return
            if passed > CONFIRMATION_SECONDS and self.outbox.is_empty:
                return  # everything is acknowledged; only the receiver's last word is missing
            if passed > NOTICE_DELAY_SECONDS and not has_reported:
                has_reported = True
                messages.note(
                    f"probe: waiting until {self._destination} has everything: "
                    f"{self.outbox.count_unacknowledged().total():,} calls, at most {most:g} s "
                    "(online_drain); Ctrl-C ends the wait."
                )

    def _create_summary(self) -> SendingSummary:
        return SendingSummary(
            self._destination,
            self._session,
            self._rank,
            tuple(dict.fromkeys(self.steps)),
            self.outbox.counts,
            self.outbox.count_unacknowledged(),
            self._transport.verdicts,
            None if self._transport.done.is_set() else self._transport.problem,
        )
