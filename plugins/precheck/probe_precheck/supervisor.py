"""Jobs in other processes: one that crashes, hangs or exhausts memory ends its process, never the run."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import pickle
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from probe_ranks.processes import choose_start_method, collect_variables, mark_temporary_directory

from probe_core.errors import UserError
from probe_precheck.worker import END_TIMEOUT_SECONDS, Worker
from probe_precheck.worker_process import MessageKind, Setup, WorkerMessage, describe_exception, serve

MAX_FAILED_STARTS = 3
"""Failed starts in a row after which a slot stays empty."""

MIN_START_TIMEOUT_SECONDS = 600.0
"""Seconds that a start may take at least; libraries and devices may need minutes the first time."""

START_TIMEOUT_FACTOR = 10.0
"""Factor of a job's time limit that gives that of a start."""

PATIENCE_SECONDS = 2.0
"""Seconds that processes get to end by themselves when all jobs are done."""

MAX_WAIT_SECONDS = 3600.0
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
    job_limit = max(1, len(jobs))
    with Processes(setup, min(workers, job_limit), timeout, method=method, preload=preload, most=job_limit) as run:
        for job in sorted(jobs, key=lambda job: -job.cost):
            run.put(job)
        run.close()
        while not run.is_done:
            yield from run.finished()
        run.end(PATIENCE_SECONDS)


class Processes:
    """Processes that run jobs, which may be put while earlier ones run.

    Jobs are run in the order in which they are put. Only ``put``, ``close`` and ``wake`` may be called by
    other threads than the one that calls ``finished``. As a context manager, it kills all processes at the
    end, with those that they started.

    Args:
        setup: See ``supervise``.
        workers: The number of processes at a time, at least 1.
        timeout: The seconds of one job, after which its process is killed.
        method: See ``supervise``.
        preload: See ``supervise``.
        most: The number of jobs that may be put and not finished.

    Raises:
        ValueError: ``workers`` is less than 1.
    """

    def __init__(
        self,
        setup: Setup,
        workers: int,
        timeout: float,
        *,
        method: str | None = None,
        preload: Sequence[str] = (),
        most: int,
    ) -> None:
        if workers < 1:
            raise ValueError("workers must be at least 1")
        method = method or choose_start_method()
        context: Any = multiprocessing.get_context(method)
        if method == "forkserver":
            mark_temporary_directory()
            context.set_forkserver_preload([serve.__module__, *preload])
        self._context = context
        self._setup = setup
        self._most = most
        self._eager = False
        self._unfinished = 0
        self._room = threading.Condition()
        self._is_open = True
        self._waiting: deque[Job] = deque()
        self._free = set(range(workers))
        self._failed_starts = dict.fromkeys(self._free, 0)
        self._timeout = timeout
        self._start_timeout = max(MIN_START_TIMEOUT_SECONDS, START_TIMEOUT_FACTOR * timeout)
        self._variables = collect_variables()
        self._selector = selectors.DefaultSelector()
        self._bell, self._woken = socket.socketpair()
        for end in (self._bell, self._woken):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._workers: list[Worker] = []
        self._dismissed: list[Worker] = []
        self._finished: list[Finished] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # -- for any thread ----------------------------------------------------------------------------

    def put(self, job: Job, wait: float | None = None) -> bool:
        """Add a job, once fewer than ``most`` are unfinished.

        Args:
            job: The job.
            wait: The seconds to wait for that; None for any time.

        Returns:
            True if it was added; False if there was no room in time, or no more jobs are taken.
        """
        with self._room:
            self._room.wait_for(lambda: self._unfinished < self._most or not self._is_open, wait)
            if self._unfinished >= self._most or not self._is_open:
                return False
            self._unfinished += 1
            self._waiting.append(job)
        self.wake()
        return True

    def close(self) -> None:
        """Take no more jobs: processes end when those that wait are done."""
        with self._room:
            self._is_open = False
            self._room.notify_all()
        self.wake()

    def wake(self) -> None:
        """Let ``finished`` return early."""
        with contextlib.suppress(OSError):  # it has ended, or has not yet seen many calls of this
            self._bell.send(b"\0")

    # -- for the thread that waits -----------------------------------------------------------------

    def set_up(self) -> None:
        """Start all processes before there are jobs, and wait until each is ready.

        Raises:
            UserError: ``setup`` raised it, or no process can be set up.
        """
        self._eager = True
        while self._free or not all(worker.is_set_up for worker in self._workers):
            self.finished()

    @property
    def is_done(self) -> bool:
        """True if no more jobs are taken, and all results were returned."""
        with self._room:
            return not self._is_open and not self._unfinished

    def finished(self, within: float = math.inf) -> list[Finished]:
        """Return the jobs that finished since the last call, each with its result or with ``Lost``.

        Args:
            within: The seconds to wait for one, at most; it may return nothing earlier.

        Raises:
            UserError: ``setup`` raised it, or no process can be set up.
        """
        self._fill_slots()
        for worker in self._wait_for_workers(within):
            self._attend(worker)
        self._end_silent()
        finished, self._finished = self._finished, []
        with self._room:
            self._unfinished -= len(finished)
            self._room.notify_all()
        return finished

    def end(self, patience: float = 0.0) -> None:
        """End all processes: dismissed ones get ``patience`` seconds in all, others are killed at once."""
        for worker in self._workers if patience else self._workers + self._dismissed:
            worker.kill()
        until = time.monotonic() + patience
        for worker in self._dismissed + self._workers:
            worker.end(max(0.0, until - time.monotonic()))
        self._dismissed, self._workers = [], []
        self.close()
        self._selector.close()
        self._bell.close()
        self._woken.close()

    # -- workers come and go -----------------------------------------------------------------------

    def _fill_slots(self) -> None:
        """Give waiting jobs to idle workers, and start workers while more jobs wait than are starting."""
        for worker in [worker for worker in self._workers if worker.is_set_up and not worker.job]:
            self._occupy(worker)
            if worker in self._workers:
                self._selector.modify(worker.channel, worker.events, worker)
        starting = sum(not worker.is_set_up for worker in self._workers)
        while self._free and (starting < len(self._waiting) or (self._eager and self._is_open)):
            starting += self._start(min(self._free))

    def _start(self, slot: int) -> bool:
        """Start a worker, and return True if that succeeded."""
        order = pickle.dumps((self._setup, slot))
        self._free.discard(slot)
        try:
            worker = Worker(self._context, slot, self._variables)
        except OSError as error:  # such as too many open files
            self._count_failed_start(slot, describe_exception(error))
            return False
        self._workers.append(worker)
        try:
            worker.start()
        except (OSError, EOFError) as error:
            self._lose(worker, describe_exception(error))
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
        exit_reason, line = worker.end(patience)
        reason = (exit_reason or reason) + (f"; it last wrote: {line}" if line else "")
        if not worker.is_set_up:
            self._count_failed_start(worker.slot, reason)
            return
        self._free.add(worker.slot)
        if worker.job:
            self._finished.append((worker.job, Lost(reason)))

    def _count_failed_start(self, slot: int, reason: str) -> None:
        self._failed_starts[slot] += 1
        if self._failed_starts[slot] < MAX_FAILED_STARTS:
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

    def _wait_for_workers(self, within: float) -> list[Worker]:
        """Wait for news of workers, the next deadline or a new job, and return the workers with news."""
        if self._finished or (not self._workers and not self._is_open):
            within = 0.0
        left = min((worker.deadline for worker in self._workers), default=math.inf) - time.monotonic()
        ready: dict[Worker, None] = {}
        for key, _ in self._selector.select(max(min(left, within, MAX_WAIT_SECONDS), 0.0)):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
                continue
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
            self._lose(worker, "its process stopped answering", END_TIMEOUT_SECONDS)
        elif worker in self._workers:
            self._selector.modify(worker.channel, worker.events, worker)

    def _take(self, worker: Worker, answer: WorkerMessage) -> None:
        if answer.kind is MessageKind.READY:
            worker.is_set_up = True
            self._failed_starts[worker.slot] = 0
            return
        if answer.kind is MessageKind.REFUSED:
            raise UserError(*pickle.loads(answer.data))
        result: Any
        try:
            result = pickle.loads(answer.data)
        except Exception as error:
            result = Lost(f"{describe_exception(error)}, when its result was read")
        else:
            result = Lost(result) if answer.kind is MessageKind.RAISED else result
        self._finished.append((worker.job, result))
        worker.job = None

    def _occupy(self, worker: Worker) -> None:
        """Give a worker the next job; if none waits, let it wait as well, or dismiss it if none will come."""
        while self._waiting:
            job = self._waiting.popleft()
            try:
                payload = pickle.dumps(job.payload, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._finished.append((job, Lost(f"{describe_exception(error)}, when it was sent")))
                continue
            worker.begin(job, payload, self._timeout)
            return
        if self._is_open:
            worker.deadline = math.inf
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
