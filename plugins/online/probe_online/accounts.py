"""Accounts of a receiver: calls judged, dropped and unsettled, for each session and each rank.

A session is one process of a training, from its start to its end. If a training is started again, its ranks
have new sessions, and each session has an account of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from probe_precheck.api import Status

WORST = (Status.ERROR, Status.WARNING, Status.PASS, Status.SKIP)


class CallKey(NamedTuple):
    """Identity of a call.

    Attributes:
        rank: The rank of the process that made the call.
        session: The session of the process.
        step: The step of the training.
        name: The name of the call.
    """

    rank: int
    session: str
    step: int
    name: str


class FirstError(NamedTuple):
    """The first call in error, in the order of the training."""

    step: int
    seq: int
    rank: int
    name: str
    message: str = ""
    session: str = ""


@dataclass(slots=True)
class SessionAccount:
    """Account of one session.

    Attributes:
        queued: Calls that the sender put into its queue, by API, as it reported last.
        dropped: Calls that the sender will not send, by API.
        ended: True if the sender reported that it has no more calls.
        complete: True if the sender also knows that all its calls are judged.
        seen: The time at which the sender was last connected, on the clock of ``time.monotonic``; None if it
            is connected.
        resumed: True if an earlier receiver knew the session.
        elsewhere: Number of its calls that other receivers of a shared directory settled.
        verdicts: Judged calls by status and API.
        left_out: Calls that the receiver's lists leave out, by API.
        lost: Number of calls that ended the process that ran them; their rows are SKIP.
        first: The first call in error; None if there is none.
        settled: Number of calls that are judged, or left out by a list.
    """

    queued: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    complete: bool = False
    seen: float | None = None
    resumed: bool = False
    elsewhere: int = 0
    verdicts: dict[Status, Counter[str]] = field(default_factory=lambda: {status: Counter() for status in WORST})
    left_out: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    first: FirstError | None = None
    settled: int = 0
    _next: int = 0
    _beyond: set[int] = field(default_factory=set)

    @property
    def judged(self) -> int:
        """Number of calls with a row."""
        return sum(counts.total() for counts in self.verdicts.values())

    @property
    def unknown(self) -> int:
        """Number of queued calls that are not settled."""
        return 0 if self.complete else max(0, self.queued.total() - self.settled - self.elsewhere)

    @property
    def is_connected(self) -> bool:
        """True while the sender is connected and has more calls."""
        return self.seen is None and not self.ended

    def settle(self, seq: int) -> None:
        """Count a call once, however often it was sent."""
        if seq < self._next or seq in self._beyond:
            return
        self.settled += 1
        self._beyond.add(seq)
        while self._next in self._beyond:
            self._beyond.discard(self._next)
            self._next += 1

    def state(self) -> dict[str, Any]:
        """Return the account as JSON."""
        return {
            "queued": dict(self.queued),
            "dropped": dict(self.dropped),
            "ended": self.ended,
            "complete": self.complete,
            "settled": self.settled,
            "connected": self.is_connected,
            "judged": self.judged,
            "by_api": {status.value: dict(self.verdicts[status]) for status in WORST},
            "left_out": dict(self.left_out),
            "lost": self.lost,
            "first_error": None if self.first is None else self.first._asdict(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> SessionAccount:
        """Return the account in a state file, without its verdicts: those are in the result files.

        Raises:
            KeyError, TypeError, ValueError, AttributeError: It is not the state of an account.
        """
        first = state["first_error"]
        return cls(
            queued=Counter(state["queued"]),
            dropped=Counter(state["dropped"]),
            ended=bool(state["ended"]),
            complete=bool(state["complete"]),
            left_out=Counter(state["left_out"]),
            lost=int(state["lost"]),
            first=None if first is None else FirstError(**first),
            settled=int(state["settled"]),
        )


@dataclass(slots=True)
class RankAccount:
    """Accounts of all sessions of a rank.

    Attributes:
        sessions: The accounts by session, in the order in which the sessions connected.
    """

    sessions: dict[str, SessionAccount] = field(default_factory=dict)

    @property
    def verdicts(self) -> dict[Status, Counter[str]]:
        """Judged calls by status and API."""
        return {
            status: sum((account.verdicts[status] for account in self.sessions.values()), Counter()) for status in WORST
        }

    @property
    def judged(self) -> int:
        """Number of calls with a row."""
        return sum(account.judged for account in self.sessions.values())

    @property
    def left_out(self) -> Counter[str]:
        """Calls that the receiver's lists leave out, by API."""
        return sum((account.left_out for account in self.sessions.values()), Counter())

    @property
    def dropped(self) -> Counter[str]:
        """Calls that the senders dropped, by API."""
        return sum((account.dropped for account in self.sessions.values()), Counter())

    @property
    def lost(self) -> int:
        """Number of calls that ended the process that ran them."""
        return sum(account.lost for account in self.sessions.values())

    @property
    def unknown(self) -> int:
        """Number of queued calls that are not settled."""
        return sum(account.unknown for account in self.sessions.values())

    @property
    def first(self) -> FirstError | None:
        """The first call in error: that of the earliest session with one."""
        firsts = (account.first for account in self.sessions.values())
        return next((first for first in firsts if first is not None), None)

    def get_session_number(self, session: str) -> int:
        """Return the number of a session among those of the rank, starting at 1."""
        return list(self.sessions).index(session) + 1

    def state(self, rank: int) -> dict[str, Any]:
        """Return the accounts as JSON."""
        verdicts, first = self.verdicts, self.first
        return {
            "rank": rank,
            "judged": self.judged,
            **{status.value.lower(): verdicts[status].total() for status in WORST},
            "by_api": {status.value: dict(verdicts[status]) for status in WORST},
            "left_out": dict(self.left_out),
            "lost": self.lost,
            "unknown": self.unknown,
            "first_error": None if first is None else first._asdict(),
            "sessions": {session: account.state() for session, account in self.sessions.items()},
        }


def parse_api(name: str) -> str:
    """Return the API of a call."""
    return name.rpartition(".")[0]
