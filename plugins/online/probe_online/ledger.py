"""Ledger of a receiver: what arrived, what became of it, and what is not known, for each rank.

It is kept in the state file ``online_{time stamp}.json``, which a receiver that is started again reads,
and is what ``--status`` shows (docs/online.md#status).
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import xxhash
from probe_precheck import Status

from probe_core.errors import UserError, printable
from probe_core.files.atomic import write_text

STATE_NAME = "online_{}.json"
SCHEMA = 1
WORST = (Status.ERROR, Status.WARNING, Status.PASS, Status.SKIP)


class FirstError(NamedTuple):
    """The first call in error, in the order of the training."""

    step: int
    seq: int
    rank: int
    name: str
    message: str = ""


@dataclass(slots=True)
class Sender:
    """One run of a training on one rank.

    Attributes:
        queued: Calls that it has put into its queue, by API, as it told last.
        dropped: Calls that it has not sent and will not, by API.
        ended: True if it has said that it has no more calls.
        complete: True if it knows as well that all of them are judged.
        seen: The time at which it was last connected, on the clock of ``time.monotonic``; None if it is
            connected.
        resumed: True if an earlier receiver knew it.
        elsewhere: Number of its calls that other receivers of a shared directory settled.
    """

    queued: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    ended: bool = False
    complete: bool = False
    seen: float | None = None
    resumed: bool = False
    elsewhere: int = 0
    _settled: int = 0
    _next: int = 0
    _beyond: set[int] = field(default_factory=set)

    @property
    def settled(self) -> int:
        """Number of calls that are judged, or left out by a list."""
        return self._settled

    @settled.setter
    def settled(self, number: int) -> None:
        self._settled = number

    @property
    def unknown(self) -> int:
        """Number of calls that it put into its queue and that are not settled."""
        return 0 if self.complete else max(0, self.queued.total() - self._settled - self.elsewhere)

    def settle(self, seq: int) -> None:
        """Count a call once, however often it was sent."""
        if seq < self._next or seq in self._beyond:
            return
        self._settled += 1
        self._beyond.add(seq)
        while self._next in self._beyond:
            self._beyond.discard(self._next)
            self._next += 1


@dataclass(slots=True)
class RankLedger:
    """Account of one rank.

    Attributes:
        senders: Its runs by their sessions; a training that is started again has another one.
        verdicts: Judged calls by status and API.
        left_out: Calls that the receiver's lists leave out, by API.
        lost: Number of calls that took their process with them; their rows are SKIP.
        first: The first call in error; None if there is none.
        bytes: Bytes of calls received.
    """

    senders: dict[str, Sender] = field(default_factory=dict)
    verdicts: dict[Status, Counter[str]] = field(default_factory=lambda: {one: Counter() for one in WORST})
    left_out: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    first: FirstError | None = None
    bytes: int = 0

    @property
    def judged(self) -> int:
        """Number of calls with a row."""
        return sum(counts.total() for counts in self.verdicts.values())

    @property
    def dropped(self) -> Counter[str]:
        """Calls that its senders dropped, by API."""
        return sum((sender.dropped for sender in self.senders.values()), Counter())

    @property
    def unknown(self) -> int:
        """Number of calls that its senders put into their queues, and that are not settled."""
        return sum(sender.unknown for sender in self.senders.values())


class Ledger:
    """Ledger of all ranks; every method may be called from any thread.

    Args:
        path: The state file.
        ranks: The ranks whose calls are judged; None for all.
    """

    def __init__(self, path: Path, ranks: frozenset[int] | None = None) -> None:
        self.path = path
        self.allowed = ranks
        self.ranks: dict[int, RankLedger] = {}
        self.expected: set[int] = set()
        self._expected_since = 0.0
        self.in_work = 0
        self.refused: Counter[str] = Counter()
        self._done: set[int] = set()
        self._working: set[int] = set()
        self._lock = threading.RLock()
        self._written = ""

    # -- senders -----------------------------------------------------------------------------------

    def greet(self, rank: int, session: str, expected: Iterable[int] = ()) -> None:
        """Note that a sender is connected.

        Args:
            rank: Its rank.
            session: Its session.
            expected: The ranks of its training that send.

        Raises:
            UserError: The state file cannot be written, which must name each sender before its calls.
        """
        with self._lock:
            is_new = session not in self._rank(rank).senders
            if (
                more := {one for one in expected if self.allowed is None or one in self.allowed}
                - self.expected
            ):
                self.expected |= more
                self._expected_since = time.monotonic()
            self._sender(rank, session).seen = None
        if is_new:
            self.write()

    def leave(self, rank: int, session: str) -> None:
        """Note that a sender is no longer connected."""
        with self._lock:
            self._sender(rank, session).seen = time.monotonic()

    def tally(
        self,
        rank: int,
        session: str,
        queued: Mapping[str, int],
        dropped: Mapping[str, int],
        *,
        ended: bool = False,
    ) -> None:
        """Take over what a sender has counted; it counts from its beginning, so the last numbers hold.

        Args:
            rank: Its rank.
            session: Its session.
            queued: Calls that it put into its queue, by API.
            dropped: Calls that it did not send, by API.
            ended: True if it has no more calls.
        """
        with self._lock:
            sender = self._sender(rank, session)
            sender.queued, sender.dropped = Counter(queued), Counter(dropped)
            sender.ended = sender.ended or ended
            if ended and sender.seen is None:
                sender.seen = time.monotonic()

    def settled(self) -> dict[tuple[int, str], int]:
        """Return the number of settled calls by rank and session."""
        with self._lock:
            return {
                (rank, session): sender.settled
                for rank, found in self.ranks.items()
                for session, sender in found.senders.items()
            }

    def elsewhere(self, rank: int, session: str, number: int) -> None:
        """Note the number of calls of a sender that other receivers settled."""
        with self._lock:
            sender = self._sender(rank, session)
            sender.elsewhere = max(sender.elsewhere, number)

    def complete(self, rank: int, session: str) -> None:
        """Note that a sender has no more calls, and that all of them are judged."""
        with self._lock:
            sender = self._sender(rank, session)
            sender.ended = sender.complete = True

    def settle(self, rank: int, session: str, seq: int, *, earlier: bool = False) -> None:
        """Note that a call of a sender needs nothing more.

        Args:
            rank: Its rank.
            session: Its session.
            seq: Its number.
            earlier: True if it was judged before it arrived.
        """
        with self._lock:
            sender = self._sender(rank, session)
            if not (earlier and sender.resumed):  # counted by its row when the receiver was started
                sender.settle(seq)

    def refuse(self, reason: str) -> None:
        """Count a connection or file that was refused."""
        with self._lock:
            if reason in self.refused or len(self.refused) < 100:
                self.refused[reason] += 1

    # -- calls -------------------------------------------------------------------------------------

    def begin(self, rank: int, step: int, name: str, size: int) -> str:
        """Return ``"done"`` for a call with a row, ``"working"`` for one that is in work, else ``"new"``.

        A new call is in work from then on.
        """
        key = _key(rank, step, name)
        with self._lock:
            if key in self._done:
                return "done"
            if key in self._working:
                return "working"
            self._working.add(key)
            self.in_work += 1
            self._rank(rank).bytes += size
            return "new"

    def leave_out(self, rank: int, step: int, name: str) -> None:
        """Count a call that a list leaves out, once however often it arrives."""
        key = _key(rank, step, name)
        with self._lock:
            if key not in self._done:
                self._done.add(key)
                self._rank(rank).left_out[api_of_call(name)] += 1

    def foresee(self, rank: int, step: int, seq: int, name: str, status: Status, message: str) -> bool:
        """Note a verdict before its rows are written; return True if the state must be written first.

        The state file holds the first call in error, whose place in the training the rows do not tell.
        """
        if status is not Status.ERROR:
            return False
        with self._lock:
            found = self._rank(rank)
            first = FirstError(step, seq, rank, name, printable(message, 400))
            if found.first is not None and found.first[:2] <= first[:2]:
                return False
            found.first = first
            return True

    def judged(self, rank: int, step: int, name: str, status: Status, *, lost: bool = False) -> None:
        """Note that the rows of a call are written."""
        key = _key(rank, step, name)
        with self._lock:
            found = self._rank(rank)
            if key in self._working:
                self._working.discard(key)
                self.in_work -= 1
            self._done.add(key)
            found.verdicts[status][api_of_call(name)] += 1
            found.lost += lost

    # -- the whole ---------------------------------------------------------------------------------

    def verdicts_of(self, rank: int) -> dict[str, dict[str, int]]:
        """Return the judged calls of a rank by status and API."""
        with self._lock:
            verdicts = self._rank(rank).verdicts
            return {status.value: dict(counts) for status, counts in verdicts.items() if counts}

    def is_over(self, patience: float) -> bool:
        """Return True if every sender has ended or has been gone for ``patience`` seconds.

        A rank that its training has announced is waited for as long.
        """
        with self._lock:
            if self.in_work or (self.allowed is not None and not self.allowed <= self.ranks.keys()):
                return False
            senders = [sender for found in self.ranks.values() for sender in found.senders.values()]
            now = time.monotonic()
            if not self.expected <= self.ranks.keys() and now - self._expected_since <= patience:
                return False
            return bool(senders) and all(
                (sender.ended and not sender.unknown)
                or (sender.seen is not None and now - sender.seen > patience)
                for sender in senders
            )

    def vanished(self) -> list[int]:
        """Return the ranks of which a sender has not said that it has no more calls."""
        with self._lock:
            return [
                rank
                for rank, found in sorted(self.ranks.items())
                if any(not sender.ended or sender.unknown for sender in found.senders.values())
            ]

    def absent(self) -> list[int]:
        """Return the ranks that their training has announced, and that never connected."""
        with self._lock:
            return sorted(self.expected - self.ranks.keys())

    def total(self, status: Status) -> int:
        """Return the number of calls with a status."""
        with self._lock:
            return sum(found.verdicts[status].total() for found in self.ranks.values())

    def first(self) -> FirstError | None:
        """Return the first call in error of all ranks; None if there is none."""
        with self._lock:
            firsts = [found.first for found in self.ranks.values() if found.first is not None]
        return min(firsts, default=None)

    def state(self, what: str = "running") -> dict[str, Any]:
        """Return all of it as JSON."""
        with self._lock:
            first = self.first()
            return {
                "schema": SCHEMA,
                "state": what,
                "in_work": self.in_work,
                "first_error": None if first is None else first._asdict(),
                "refused": dict(self.refused),
                "expected": sorted(self.expected),
                "ranks": [_rank_state(rank, found) for rank, found in sorted(self.ranks.items())],
            }

    def write(self, what: str = "running") -> None:
        """Write the state file if anything has changed.

        Raises:
            UserError: It cannot be written.
        """
        with self._lock:
            text = json.dumps(self.state(what), ensure_ascii=False, indent=1)
            if text != self._written:
                write_text(self.path, text)
                self._written = text

    def load(self, state: Mapping[str, Any], rows: Iterable[tuple[int, int, str, Status]]) -> int:
        """Take over the state of an earlier receiver and the calls in its files; return their number.

        Args:
            state: The content of its state file.
            rows: Rank, step, name and status of each call in its result files.

        Raises:
            UserError: The state is not that of a receiver.
        """
        count = 0
        try:
            self._load(state)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(
                f"{self.path} is not the state of a receiver.",
                "Move it away, or give another directory with -o.",
            ) from None
        for rank, step, name, status in rows:
            self.judged(rank, step, name, status)
            count += 1
        for found in self.ranks.values():  # rows may have been written after the state was
            *before, last = found.senders.values() or [Sender()]
            settled = found.judged + found.left_out.total() - sum(sender.settled for sender in before)
            last.settled = max(last.settled, settled)
        return count

    def _load(self, state: Mapping[str, Any]) -> None:
        self.expected, self._expected_since = set(map(int, state.get("expected", ()))), time.monotonic()
        for one in state["ranks"]:
            found = self._rank(int(one["rank"]))
            found.left_out, found.lost = Counter(one["left_out"]), int(one["lost"])
            for session, sender in one["senders"].items():
                queued, dropped = Counter(sender["queued"]), Counter(sender["dropped"])
                found.senders[session] = Sender(
                    queued, dropped, bool(sender["ended"]), bool(sender["complete"]), time.monotonic(), True
                )
                found.senders[session].settled = int(sender["settled"])
            if one["first_error"] is not None:
                found.first = FirstError(**one["first_error"])

    def _rank(self, rank: int) -> RankLedger:
        return self.ranks.setdefault(rank, RankLedger())

    def _sender(self, rank: int, session: str) -> Sender:
        return self._rank(rank).senders.setdefault(session, Sender())

    def each(self) -> Iterator[tuple[int, RankLedger]]:
        """Yield the ranks in their order."""
        with self._lock:
            yield from sorted(self.ranks.items())


def api_of_call(name: str) -> str:
    """Return the API of a call."""
    return name.rpartition(".")[0]


def _rank_state(rank: int, found: RankLedger) -> dict[str, Any]:
    return {
        "rank": rank,
        "judged": found.judged,
        **{status.value.lower(): found.verdicts[status].total() for status in WORST},
        "by_api": {status.value: dict(found.verdicts[status]) for status in WORST},
        "left_out": dict(found.left_out),
        "lost": found.lost,
        "unknown": found.unknown,
        "first_error": None if found.first is None else found.first._asdict(),
        "senders": {
            session: {
                "queued": dict(sender.queued),
                "dropped": dict(sender.dropped),
                "ended": sender.ended,
                "complete": sender.complete,
                "settled": sender.settled,
                "connected": sender.seen is None and not sender.ended,
            }
            for session, sender in found.senders.items()
        },
    }


def _key(rank: int, step: int, name: str) -> int:
    return xxhash.xxh3_128_intdigest(f"{rank}/{step}/{name}".encode())
