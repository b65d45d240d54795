"""Ledger of a receiver: the accounts of all sessions, which is what ``--status`` prints.

It is stored in the state file ``online_{time stamp}.json``, which a receiver that is started again reads
(docs/online.md#status).
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import xxhash
from probe_precheck.api import Status

from probe_core.errors import UserError, make_printable
from probe_core.files.atomic import write_text
from probe_online.accounts import CallKey, FirstError, RankAccount, SessionAccount, parse_api

STATE_NAME = "online_{}.json"
SCHEMA = 2
"""Version of the state file. Since version 2 each session has its own verdicts."""
MAX_SESSIONS = 4096
"""Sessions that a receiver accepts, since each has an account in memory and in the state file."""
MAX_EXPECTED_RANKS = 1 << 16
"""Ranks that trainings may announce."""
MAX_REFUSALS = 100
"""Different sentences on refused connections and files that are counted."""


class Ledger:
    """Ledger of all ranks; every method may be called from any thread.

    Args:
        path: The state file.
        ranks: The ranks whose calls are judged; None for all.
    """

    def __init__(self, path: Path, ranks: frozenset[int] | None = None) -> None:
        self.path = path
        self.allowed = ranks
        self.ranks: dict[int, RankAccount] = {}
        self.expected: set[int] = set()
        self._expected_since = 0.0
        self.in_work = 0
        self.refused: Counter[str] = Counter()
        self._done: set[int] = set()
        self._working: set[int] = set()
        self._lock = threading.RLock()
        self._written = ""

    # -- senders -----------------------------------------------------------------------------------

    def has_room_for(self, rank: int, session: str) -> bool:
        """Return True if a session is known, or if one more session is accepted."""
        with self._lock:
            sessions = self.ranks.get(rank, RankAccount()).sessions
            return (
                session in sessions
                or sum(len(rank_account.sessions) for rank_account in self.ranks.values()) < MAX_SESSIONS
            )

    def greet(self, rank: int, session: str, expected: Iterable[int] = ()) -> None:
        """Note that a sender is connected.

        Args:
            rank: Its rank.
            session: Its session.
            expected: The ranks of its training that send.
        """
        with self._lock:
            new_ranks = {
                expected_rank for expected_rank in expected if self.allowed is None or expected_rank in self.allowed
            } - self.expected
            if new_ranks and len(self.expected) + len(new_ranks) <= MAX_EXPECTED_RANKS:
                self.expected |= new_ranks
                self._expected_since = time.monotonic()
            self._get_account(rank, session).seen = None

    def note_disconnect(self, rank: int, session: str) -> None:
        """Note that a sender is no longer connected."""
        with self._lock:
            self._get_account(rank, session).seen = time.monotonic()

    def tally(
        self,
        rank: int,
        session: str,
        queued: Mapping[str, int],
        dropped: Mapping[str, int],
        *,
        ended: bool = False,
    ) -> None:
        """Replace the counts of a sender, which counts from its beginning.

        Args:
            rank: Its rank.
            session: Its session.
            queued: Calls that it put into its queue, by API.
            dropped: Calls that it did not send, by API.
            ended: True if it has no more calls.
        """
        with self._lock:
            account = self._get_account(rank, session)
            account.queued, account.dropped = Counter(queued), Counter(dropped)
            account.ended = account.ended or ended
            if ended and account.seen is None:
                account.seen = time.monotonic()

    def count_settled(self) -> dict[tuple[int, str], int]:
        """Return the number of settled calls by rank and session."""
        with self._lock:
            return {(rank, session): account.settled for rank, session, account in self._list_accounts()}

    def note_settled_elsewhere(self, rank: int, session: str, number: int) -> None:
        """Note the number of calls of a sender that other receivers settled."""
        with self._lock:
            account = self._get_account(rank, session)
            account.elsewhere = max(account.elsewhere, number)

    def complete(self, rank: int, session: str) -> None:
        """Note that a sender has no more calls, and that all of them are judged."""
        with self._lock:
            account = self._get_account(rank, session)
            account.ended = account.complete = True

    def settle(self, rank: int, session: str, seq: int, *, earlier: bool = False) -> None:
        """Note that a call of a sender is judged or left out.

        Args:
            rank: Its rank.
            session: Its session.
            seq: Its number.
            earlier: True if it was judged before it arrived.
        """
        with self._lock:
            account = self._get_account(rank, session)
            if not (earlier and account.resumed):  # counted by its row when the receiver was started
                account.settle(seq)

    def refuse(self, reason: str) -> None:
        """Count a connection or file that was refused."""
        with self._lock:
            if reason in self.refused or len(self.refused) < MAX_REFUSALS:
                self.refused[reason] += 1

    # -- calls -------------------------------------------------------------------------------------

    def begin(self, key: CallKey) -> str:
        """Return ``"done"`` for a call with a row, ``"working"`` for a call in work, else ``"new"``.

        A new call is in work from then on.
        """
        digest = _hash_key(key)
        with self._lock:
            if digest in self._done:
                return "done"
            if digest in self._working:
                return "working"
            self._working.add(digest)
            self.in_work += 1
            return "new"

    def count_left_out(self, key: CallKey) -> None:
        """Count a call that a list leaves out, once however often it arrives."""
        digest = _hash_key(key)
        with self._lock:
            if digest not in self._done:
                self._done.add(digest)
                self._get_account(key.rank, key.session).left_out[parse_api(key.name)] += 1

    def note_pending_verdict(self, key: CallKey, seq: int, status: Status, message: str) -> bool:
        """Note a verdict before its rows are written; return True if the state must be written first.

        The state file holds the first call in error, because the rows do not hold its number in the training.
        """
        if status is not Status.ERROR:
            return False
        with self._lock:
            account = self._get_account(key.rank, key.session)
            if account.first is not None and account.first[:2] <= (key.step, seq):
                return False
            account.first = FirstError(key.step, seq, key.rank, key.name, make_printable(message, 400), key.session)
            return True

    def record_verdict(self, key: CallKey, status: Status, *, lost: bool = False) -> None:
        """Note that the rows of a call are written."""
        digest = _hash_key(key)
        with self._lock:
            account = self._get_account(key.rank, key.session)
            if digest in self._working:
                self._working.discard(digest)
                self.in_work -= 1
            self._done.add(digest)
            account.verdicts[status][parse_api(key.name)] += 1
            account.lost += lost

    # -- the whole ---------------------------------------------------------------------------------

    def count_verdicts(self, rank: int, session: str) -> dict[str, dict[str, int]]:
        """Return the judged calls of a session by status and API."""
        with self._lock:
            verdicts = self._get_account(rank, session).verdicts
            return {status.value: dict(counts) for status, counts in verdicts.items() if counts}

    def is_over(self, patience: float) -> bool:
        """Return True if every sender has ended or has been gone for ``patience`` seconds.

        A rank that its training has announced is waited for as long.
        """
        with self._lock:
            if self.in_work or (self.allowed is not None and not self.allowed <= self.ranks.keys()):
                return False
            now = time.monotonic()
            if not self.expected <= self.ranks.keys() and now - self._expected_since <= patience:
                return False
            accounts = [account for _, _, account in self._list_accounts()]
            return bool(accounts) and all(
                (account.ended and not account.unknown) or (account.seen is not None and now - account.seen > patience)
                for account in accounts
            )

    def list_vanished_senders(self) -> list[tuple[int, str]]:
        """Return rank and session of each sender that has not reported that it has no more calls."""
        with self._lock:
            return [
                (rank, session)
                for rank, session, account in self._list_accounts()
                if not account.ended or account.unknown
            ]

    def list_absent_ranks(self) -> list[int]:
        """Return the ranks that their training has announced, and that never connected."""
        with self._lock:
            return sorted(self.expected - self.ranks.keys())

    def count_calls(self, status: Status) -> int:
        """Return the number of calls with a status."""
        with self._lock:
            return sum(account.verdicts[status].total() for _, _, account in self._list_accounts())

    def find_first_error(self) -> FirstError | None:
        """Return the first call in error of all ranks; None if there is none.

        Calls of the first session of each rank come before those of the second, and so on.
        """
        with self._lock:
            firsts = [
                (number, account.first)
                for rank_account in self.ranks.values()
                for number, account in enumerate(rank_account.sessions.values())
                if account.first is not None
            ]
        return min(firsts)[1] if firsts else None

    def state(self, state_name: str = "running") -> dict[str, Any]:
        """Return all of it as JSON."""
        with self._lock:
            first = self.find_first_error()
            return {
                "schema": SCHEMA,
                "state": state_name,
                "in_work": self.in_work,
                "first_error": None if first is None else first._asdict(),
                "refused": dict(self.refused),
                "expected": sorted(self.expected),
                "ranks": [rank_account.state(rank) for rank, rank_account in sorted(self.ranks.items())],
            }

    def write(self, state_name: str = "running") -> None:
        """Write the state file if anything has changed.

        Raises:
            UserError: It cannot be written.
        """
        with self._lock:
            text = json.dumps(self.state(state_name), ensure_ascii=False, indent=1)
            if text != self._written:
                write_text(self.path, text)
                self._written = text

    def load(self, state: Mapping[str, Any], rows: Iterable[tuple[CallKey, Status]]) -> int:
        """Restore the state of an earlier receiver and the calls in its files; return their number.

        Args:
            state: The content of its state file.
            rows: Each call in its result files, with its status.

        Raises:
            UserError: The state is not that of a receiver, or another version of probe wrote it.
        """
        try:
            self._load(state)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(
                f"{self.path} is not the state of a receiver of this version.",
                "Move it away, or give another directory with -o.",
            ) from None
        count = 0
        for key, status in rows:
            self.record_verdict(key, status)
            count += 1
        for _, _, account in self._list_accounts():  # rows may have been written after the state was
            account.settled = max(account.settled, account.judged + account.left_out.total())
            account.resumed, account.seen = True, time.monotonic()
        return count

    def _load(self, state: Mapping[str, Any]) -> None:
        if state["schema"] != SCHEMA:
            raise ValueError(state["schema"])
        self.expected, self._expected_since = set(map(int, state["expected"])), time.monotonic()
        for rank_state in state["ranks"]:
            rank_account = self._get_rank(int(rank_state["rank"]))
            for session, account in rank_state["sessions"].items():
                rank_account.sessions[session] = SessionAccount.from_state(account)

    def _get_rank(self, rank: int) -> RankAccount:
        return self.ranks.setdefault(rank, RankAccount())

    def _get_account(self, rank: int, session: str) -> SessionAccount:
        return self._get_rank(rank).sessions.setdefault(session, SessionAccount())

    def _list_accounts(self) -> list[tuple[int, str, SessionAccount]]:
        """Return rank, session and account of each session, in the order of the ranks."""
        return [
            (rank, session, account)
            for rank, rank_account in sorted(self.ranks.items())
            for session, account in rank_account.sessions.items()
        ]

    def iterate_ranks(self) -> Iterator[tuple[int, RankAccount]]:
        """Yield the ranks in their order."""
        with self._lock:
            yield from sorted(self.ranks.items())


def _hash_key(key: CallKey) -> int:
    return xxhash.xxh3_128_intdigest("/".join(map(str, key)).encode())
