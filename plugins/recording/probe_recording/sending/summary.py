"""The end of sending: lines for a person, and ``online_rank{r}.json`` with the same by API."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from probe_recording.sending.outbox import Counts, format_largest
from probe_recording.sessions.loss import format_steps
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
