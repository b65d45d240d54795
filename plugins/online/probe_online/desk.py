"""Desk between the places where calls arrive and the processes that judge them.

Calls come from other threads; rows are written by the thread that calls ``work``, and only then is a call
reported as settled. So a receiver that is killed loses nothing that it has reported.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from probe_precheck.calls import find_skip_message
from probe_precheck.settings import Settings
from probe_precheck.supervisor import Job, LostJob, ProcessPool
from probe_recording.sending.message import SentCall

from probe_core.errors import make_printable
from probe_online.accounts import CallKey, parse_api
from probe_online.files import ResultDirectory
from probe_online.judging import RowMaker, SentPayload, SentRows, call_name
from probe_online.ledger import Ledger

Settle = Callable[[bool], None]
"""Function that is called when a call is judged or left out; True if it was judged before it arrived."""


@dataclass(slots=True, eq=False)
class Work:
    """Call in work.

    Attributes:
        key: Its identity.
        seq: Its number in its session.
        settle: Functions to call when its rows are written.
    """

    key: CallKey
    seq: int
    settle: list[Settle] = field(default_factory=list)


class Desk:
    """Desk of one receiver.

    Args:
        processes: The processes that judge.
        ledger: The ledger.
        files: The result files.
        rows: Makes the rows of calls that are not run.
        settings: The lists of APIs.
    """

    def __init__(
        self, processes: ProcessPool, ledger: Ledger, files: ResultDirectory, rows: RowMaker, settings: Settings
    ) -> None:
        self.ledger = ledger
        self._processes = processes
        self._files = files
        self._rows = rows
        self._settings = settings
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._by_number: dict[int, Work] = {}
        self._by_key: dict[CallKey, Work] = {}
        self._unrun: deque[tuple[Work, SentRows]] = deque()
        self._heard: deque[str] = deque(maxlen=100)
        self._said: set[str] = set()

    # -- for any thread ----------------------------------------------------------------------------

    def greet(self, rank: int, session: str, expected: Iterable[int]) -> None:
        """Note that a sender is connected, and report a rank that has a further session."""
        self.ledger.greet(rank, session, expected)
        number = self.ledger.ranks[rank].get_session_number(session)
        if number > 1:
            self.add_sentence(
                f"Rank {rank} has a further session ({number}: {session[:8]}): its training was started "
                "again, or another training sends the same rank. Each session is judged separately."
            )

    def take(self, session: str, call: SentCall, payload: SentPayload, settle: Settle) -> bool:
        """Accept a call; ``settle`` is called by any thread when it is judged or left out.

        Args:
            session: The session of its sender.
            call: The call.
            payload: The same call for a worker process.
            settle: The function.

        Returns:
            False if the receiver is ending, so that the call was not accepted.
        """
        key = CallKey(call.rank, session, call.step, call_name(call.name))
        problem = find_skip_message(key.name, Settings())
        api = parse_api(key.name)
        if not problem and not self._settings.selects(api.partition(".")[2]):
            self.ledger.count_left_out(key)
            settle(False)
            return True
        with self._lock:
            state = self.ledger.begin(key)
            if state == "working":
                self._by_key[key].settle.append(settle)
                return True
            if state == "new":
                work = Work(key, call.seq, [settle])
                self._by_key[key] = work
                number = next(self._numbers)
                self._by_number[number] = work
        if state == "done":
            settle(True)
            return True
        if problem:
            del self._by_number[number]
            self._unrun.append((work, self._rows.create_skipped_rows(key.name, problem)))
            self._processes.wake()
            return True
        return self._processes.put(Job(number, payload))

    def refuse(self, sentence: str) -> None:
        """Count what was refused, and print the sentence on it once."""
        sentence = make_printable(sentence, 300)
        self.ledger.refuse(sentence)
        self.add_sentence(sentence)

    def add_sentence(self, sentence: str) -> None:
        """Keep a sentence for the thread that prints; each is printed once."""
        sentence = make_printable(sentence, 300)
        if sentence not in self._said and len(self._said) < 100:
            self._said.add(sentence)
            self._heard.append(sentence)

    # -- for the thread that writes ----------------------------------------------------------------

    def process_answers(self, within: float) -> list[str]:
        """Write the rows of calls that were judged, waiting for one; return the sentences to print.

        Args:
            within: The seconds to wait at most.

        Raises:
            UserError: A file cannot be written, or no process can be set up.
        """
        for job, answer in self._processes.collect_finished(within):
            work = self._by_number.pop(job.key)
            if isinstance(answer, LostJob):
                answer = self._rows.create_skipped_rows(work.key.name, f"ERROR: {answer.reason}", lost=True)
            self._write(work, answer)
        while self._unrun:
            self._write(*self._unrun.popleft())
        sentences = list(self._heard)
        self._heard.clear()
        return sentences

    def _write(self, work: Work, rows: SentRows) -> None:
        if self.ledger.note_pending_verdict(work.key, work.seq, rows.status, rows.message):
            self.ledger.write()
        self._files.append(work.key, rows)
        with self._lock:
            self.ledger.record_verdict(work.key, rows.status, lost=rows.lost)
            del self._by_key[work.key]
        for settle in work.settle:
            settle(False)
