"""Desk between the places where calls arrive and the processes that judge them.

Calls come from other threads; rows are written by the thread that calls ``work``, and only then is a call
reported as settled. So a receiver that is killed loses nothing that it has reported.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from probe_precheck import Job, Lost, Processes, Settings, problem_of
from probe_recording import SentCall

from probe_core.errors import printable
from probe_online.files import ResultDirectory
from probe_online.judging import RowMaker, SentPayload, SentRows, call_name
from probe_online.ledger import Ledger, api_of_call

Settle = Callable[[bool], None]
"""Function that is called when a call needs nothing more; True if it was judged before it arrived."""


@dataclass(slots=True, eq=False)
class Work:
    """Call in work.

    Attributes:
        call: The call, without the fields of its record.
        name: Its name.
        settle: Functions to call when its rows are written.
    """

    call: SentCall
    name: str
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
        self, processes: Processes, ledger: Ledger, files: ResultDirectory, rows: RowMaker, settings: Settings
    ) -> None:
        self.ledger = ledger
        self._processes = processes
        self._files = files
        self._rows = rows
        self._settings = settings
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._by_number: dict[int, Work] = {}
        self._by_place: dict[tuple[int, int, str], Work] = {}
        self._unrun: deque[tuple[Work, SentRows]] = deque()
        self._heard: deque[str] = deque(maxlen=100)
        self._said: set[str] = set()

    # -- for any thread ----------------------------------------------------------------------------

    def take(self, payload: SentPayload, settle: Settle) -> bool:
        """Accept a call; ``settle`` is called by any thread when it needs nothing more.

        Returns:
            False if the receiver is ending, so that the call was not accepted.
        """
        call = payload.call
        name = call_name(call.name)
        problem = problem_of(name, Settings())
        api = api_of_call(name)
        if not problem and not self._settings.lets_through(api.partition(".")[2]):
            self.ledger.leave_out(call.rank, call.step, name)
            settle(False)
            return True
        place = call.rank, call.step, name
        with self._lock:
            known = self.ledger.begin(*place, len(payload.content))
            if known == "working":
                self._by_place[place].settle.append(settle)
                return True
            if known == "new":
                work = Work(replace(call, fields={}), name, [settle])
                self._by_place[place] = work
                number = next(self._numbers)
                self._by_number[number] = work
        if known == "done":
            settle(True)
            return True
        if problem:
            del self._by_number[number]
            self._unrun.append((work, self._rows.skipped(name, problem)))
            self._processes.wake()
            return True
        return self._processes.put(Job(number, payload))

    def hear(self, sentence: str) -> None:
        """Keep a sentence on something that was refused, for the thread that prints; each is said once."""
        sentence = printable(sentence, 300)
        self.ledger.refuse(sentence)
        if sentence not in self._said and len(self._said) < 100:
            self._said.add(sentence)
            self._heard.append(sentence)

    # -- for the thread that writes ----------------------------------------------------------------

    def work(self, within: float) -> list[str]:
        """Write the rows of calls that were judged, waiting for one; return what is to be said.

        Args:
            within: The seconds to wait at most.

        Raises:
            UserError: A file cannot be written, or no process can be set up.
        """
        for job, answer in self._processes.finished(within):
            work = self._by_number.pop(job.key)
            if isinstance(answer, Lost):
                answer = self._rows.skipped(work.name, f"ERROR: {answer.reason}", lost=True)
            self._write(work, answer)
        while self._unrun:
            self._write(*self._unrun.popleft())
        said = list(self._heard)
        self._heard.clear()
        return said

    def _write(self, work: Work, rows: SentRows) -> None:
        call, name = work.call, work.name
        if self.ledger.foresee(call.rank, call.step, call.seq, name, rows.status, rows.message):
            self.ledger.write()
        self._files.append(call.rank, call.step, rows)
        with self._lock:
            self.ledger.judged(call.rank, call.step, name, rows.status, lost=rows.lost)
            del self._by_place[call.rank, call.step, name]
        for settle in work.settle:
            settle(False)
