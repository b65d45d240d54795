"""Jobs in other processes: one that crashes, hangs or exhausts memory ends its process, never the run."""

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
"""Failed starts in a row after which a slot stays empty."""

START_TIME = 600.0
"""Seconds that a start may take at least; libraries and devices may need minutes the first time."""

START_FACTOR = 10.0
"""Factor of a job's time limit that gives that of a start."""

PATIENCE = 2.0
"""Seconds that processes get to end by themselves when all jobs are done."""

LONGEST_WAIT = 3600.0
"""Seconds of one wait at most, since a time limit may be infinite and a wait of the system may not."""


class Job(NamedTuple):
    """Job for a process.

    Attributes:
        key: The caller's number of the job.
        payload: The data that are sent to the process.
        cost: An estimate by which jobs are ordered, costly ones first.
    """

    key: int
    payload: Any
    cost: float = 1.0


class Lost(NamedTuple):
    """Reason why a job has no result, such as "its process ended with exit code 3"."""

    reason: str


Finished = tuple[Job, Any]
"""Job with its result, or with ``Lost``."""


def supervise(
    setup: Setup,
    jobs: Sequence[Job],
    workers: int,
    timeout: float,
    *,
    method: str | None = None,
    preload: Sequence[str] = (),
) -> Generator[Finished, None, None]:
    """Run jobs in processes, costly ones first, and yield each with its result or ``Lost`` as it finishes.

    Close the generator to end early (``contextlib.closing``): all processes are killed, with those they
    started.

    Args:
        setup: A function that is called in each new process with the number of its slot, 0 to ``workers -
            1``, and returns the function that runs a payload. It is pickled, as payloads and results are.
        jobs: The jobs.
        workers: The number of processes at a time, at least 1.
        timeout: The seconds of one job, after which its process is killed. A start has a longer limit.
        method: ``forkserver`` or ``spawn``; None for the quicker one of those that work here.
        preload: Modules to import once in the server that processes are forked from, for quick starts. Their
            output during import is not caught, and a server that already runs does not import them.

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
    """State of a run: waiting jobs, workers, and workers that were dismissed."""

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
        """Yield every job with its result, or with ``Lost``."""
        while self._waiting or any(worker.job for worker in self._workers):
            self._fill_slots()
            for worker in self._ready():
                self._attend(worker)
            self._end_silent()
            finished, self._finished = self._finished, []
            yield from finished

    def end(self, patience: float = 0.0) -> None:
        """End all processes: dismissed ones get ``patience`` seconds in all, others are killed at once."""
        for worker in self._workers if patience else self._workers + self._dismissed:
            worker.kill()
        until = time.monotonic() + patience
        for worker in self._dismissed + self._workers:
            worker.end(max(0.0, until - time.monotonic()))
        self._dismissed, self._workers = [], []
        self._selector.close()

    # -- workers come and go -----------------------------------------------------------------------

    def _fill_slots(self) -> None:
        """Start workers while more jobs wait than workers are starting."""
        starting = sum(not worker.is_set_up for worker in self._workers)
        while self._free and starting < len(self._waiting):
            starting += self._start(min(self._free))

    def _start(self, slot: int) -> bool:
        """Start a worker, and return True if that succeeded."""
        order = pickle.dumps((self._setup, slot))
        self._free.discard(slot)
        try:
            worker = Worker(self._context, slot, self._variables)
        except OSError as error:  # such as too many open files
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
        """Give up a worker and its job.

        Args:
            worker: The worker.
            reason: The reason to report if the process does not end by itself.
            patience: The seconds that it gets to do so.
        """
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
                "Remove that cause; if memory is short, use fewer processes (-n).",
            )

    def _forget(self, worker: Worker) -> None:
        """Stop waiting for messages of a worker."""
        self._workers.remove(worker)
        for key in list(self._selector.get_map().values()):
            if key.data is worker:
                self._selector.unregister(key.fileobj)

    # -- what workers say --------------------------------------------------------------------------

    def _ready(self) -> list[Worker]:
        """Wait for news of workers or the next deadline, and return the workers with news."""
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
        """Receive a worker's answer, if it is complete, and give it the next job."""
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
        """Give a worker the next job; dismiss it if none is left."""
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
        """Give up the workers whose deadline has passed."""
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            limit = self._timeout if worker.is_set_up else self._start_timeout
            self._lose(worker, f"no answer within {limit:g} s")
