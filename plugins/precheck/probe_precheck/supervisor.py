"""Jobs in other processes: one that crashes, hangs or eats the memory costs its process, never the run."""

from __future__ import annotations

import multiprocessing
import pickle
import selectors
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from probe_core.errors import UserError
from probe_core.ranks import processes
from probe_precheck.worker import ENDING, Worker
from probe_precheck.worker_process import Answer, Says, Setup, raised, serve

STARTS = 3
"""Processes that die in a row before they are set up, after which their slot stays empty."""

START_TIME = 600.0
"""Seconds for starting, at least; libraries and devices may take minutes the first time."""

START_FACTOR = 10.0
"""Starting may take so many times the time of a job."""

PATIENCE = 2.0
"""Seconds for processes to end by themselves when there is no more to do."""

LONGEST_WAIT = 3600.0
"""Seconds that are waited at a time; a limit may be infinite, which the system knows nothing of."""


class Job(NamedTuple):
    """Something to be done. ``payload`` is sent to the process; of ``cost``, only the order counts."""

    key: int
    payload: Any
    cost: float = 1.0


class Lost(NamedTuple):
    """Why a job has no result, as the rest of a sentence: "its process ended with exit code 3"."""

    reason: str


Finished = tuple[Job, Any]
"""A job with its result, or with ``Lost``."""


def supervise(
    setup: Setup,
    jobs: Sequence[Job],
    workers: int,
    timeout: float,
    *,
    method: str | None = None,
    preload: Sequence[str] = (),
) -> Generator[Finished, None, None]:
    """Run ``jobs`` in processes, costly ones first, and give each with its result or ``Lost`` as it finishes.

    Close the generator to end early (``contextlib.closing``): every process is killed, with all it started.

    Args:
        setup: Called in each new process with the number of its slot, 0 to ``workers - 1``; gives what runs a
            payload. It is pickled, as payloads and results are.
        workers: How many processes at a time, at least 1.
        timeout: Seconds for one job; then its process is killed. Starting has a longer limit of its own.
        method: ``forkserver`` or ``spawn``; the quicker of those that work here, where left out.
        preload: Modules to import once in the server that processes are forked from, for quick starts. What
            they print as they are imported is not caught, and a server that runs already takes no notice.

    Raises:
        UserError: ``setup`` raised it, or no process can be set up.
        ValueError: ``workers`` is less than 1.
    """
    if workers < 1:
        raise ValueError("workers must be at least 1")
    method = method or processes.start_method()
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        processes.mark_temporary()
        context.set_forkserver_preload([serve.__module__, *preload])
    run = _Run(context, setup, jobs, workers, timeout)
    try:
        yield from run.results()
        run.end(PATIENCE)
    finally:
        run.end()


class _Run:
    """The jobs that wait, the workers at theirs, and those that may go."""

    def __init__(self, context: Any, setup: Setup, jobs: Sequence[Job], workers: int, timeout: float) -> None:
        self._context = context
        self._setup = setup
        self._waiting = deque(sorted(jobs, key=lambda job: -job.cost))
        self._free = set(range(min(workers, len(jobs))))
        self._failed_starts = dict.fromkeys(self._free, 0)
        self._timeout = timeout
        self._start_timeout = max(START_TIME, START_FACTOR * timeout)
        self._variables = processes.our_variables()
        self._selector = selectors.DefaultSelector()
        self._workers: list[Worker] = []
        self._dismissed: list[Worker] = []
        self._finished: list[Finished] = []

    def results(self) -> Generator[Finished, None, None]:
        """Every job with what became of it."""
        while self._waiting or any(worker.job for worker in self._workers):
            self._fill_slots()
            for worker in self._ready():
                self._attend(worker)
            self._end_silent()
            finished, self._finished = self._finished, []
            yield from finished

    def end(self, patience: float = 0.0) -> None:
        """End all processes: kill them, but give those that may go ``patience`` seconds in all."""
        for worker in self._workers if patience else self._workers + self._dismissed:
            worker.kill()
        until = time.monotonic() + patience
        for worker in self._dismissed + self._workers:
            worker.end(max(0.0, until - time.monotonic()))
        self._dismissed, self._workers = [], []
        self._selector.close()

    # -- workers come and go -----------------------------------------------------------------------

    def _fill_slots(self) -> None:
        """Start workers while there are more jobs than workers about to take one."""
        starting = sum(not worker.is_set_up for worker in self._workers)
        while self._free and starting < len(self._waiting):
            starting += self._start(min(self._free))

    def _start(self, slot: int) -> bool:
        """Start a worker; whether that went well."""
        order = pickle.dumps((self._setup, slot))
        self._free.discard(slot)
        try:
            worker = Worker(self._context, slot, self._variables)
        except OSError as error:  # too many files
            self._count_failed_start(slot, raised(error))
            return False
        self._workers.append(worker)
        try:
            worker.start()
        except (OSError, EOFError) as error:
            self._lose(worker, raised(error))
            return False
        worker.send(order, self._start_timeout)
        self._selector.register(worker.channel, worker.events, worker)
        self._selector.register(worker.sentinel, selectors.EVENT_READ, worker)
        return True

    def _lose(self, worker: Worker, reason: str, patience: float = 0.0) -> None:
        """Give a worker up, with the job that it is at; ``reason`` is for one that does not end by itself."""
        self._forget(worker)
        how, line = worker.end(patience)
        reason = (how or reason) + (f"; it last wrote: {line}" if line else "")
        if not worker.is_set_up:
            self._count_failed_start(worker.slot, reason)
            return
        self._free.add(worker.slot)
        if worker.job:
            self._finished.append((worker.job, Lost(reason)))

    def _count_failed_start(self, slot: int, reason: str) -> None:
        self._failed_starts[slot] += 1
        if self._failed_starts[slot] < STARTS:
            self._free.add(slot)
        elif not self._free and not self._workers:
            raise UserError(
                f"No process to run the jobs in can be set up: {reason}.",
                "Mend what is said there; where memory is short, use fewer processes.",
            )

    def _forget(self, worker: Worker) -> None:
        """Wait no more for what a worker says."""
        self._workers.remove(worker)
        for key in list(self._selector.get_map().values()):
            if key.data is worker:
                self._selector.unregister(key.fileobj)

    # -- what workers say --------------------------------------------------------------------------

    def _ready(self) -> list[Worker]:
        """The workers of which there is news, once there is some or a deadline is reached."""
        if not self._workers:
            return []
        left = min(worker.deadline for worker in self._workers) - time.monotonic()
        ready: dict[Worker, None] = {}
        for key, _ in self._selector.select(min(max(left, 0.0), LONGEST_WAIT)):
            worker: Worker = key.data
            ready[worker] = None
            if key.fileobj is not worker.channel:
                worker.is_gone = True
        return list(ready)

    def _attend(self, worker: Worker) -> None:
        """Take a worker's answer, if it is all there, and give it the next job."""
        worker.flush()
        answer = worker.receive()
        if answer is not None:
            self._take(worker, answer)
            if not worker.is_gone:
                self._occupy(worker)
        if worker.is_gone:
            self._lose(worker, "its process stopped answering", ENDING)
        elif worker in self._workers:
            self._selector.modify(worker.channel, worker.events, worker)

    def _take(self, worker: Worker, answer: Answer) -> None:
        if answer.says is Says.READY:
            worker.is_set_up = True
            self._failed_starts[worker.slot] = 0
            return
        if answer.says is Says.REFUSED:
            raise UserError(*pickle.loads(answer.data))
        result: Any
        try:
            result = pickle.loads(answer.data)
        except Exception as error:
            result = Lost(f"{raised(error)}, when its result was read")
        else:
            result = Lost(result) if answer.says is Says.RAISED else result
        self._finished.append((worker.job, result))
        worker.job = None

    def _occupy(self, worker: Worker) -> None:
        """Give a worker the next job; with none left, let it go."""
        while self._waiting:
            job = self._waiting.popleft()
            try:
                payload = pickle.dumps(job.payload, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._finished.append((job, Lost(f"{raised(error)}, when it was sent")))
                continue
            worker.begin(job, payload, self._timeout)
            return
        self._forget(worker)
        self._dismissed.append(worker)
        worker.dismiss()

    def _end_silent(self) -> None:
        """Give up the workers whose time is up."""
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            limit = self._timeout if worker.is_set_up else self._start_timeout
            self._lose(worker, f"no answer within {limit:g} s")
