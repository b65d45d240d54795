"""Jobs in other processes. A job that crashes, hangs or exhausts memory ends its process, and not the run."""

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
"""Time limit of a start, as a multiple of the time limit of a job."""

PATIENCE_SECONDS = 2.0
"""Seconds that processes get to end by themselves when all jobs are done."""

MAX_WAIT_SECONDS = 3600.0
"""Longest time in seconds of a single wait, because the system does not accept an infinite time."""


class Job(NamedTuple):
    """Job for a process.

    Attributes:
        key: The caller's number of the job.
        payload: The data that is sent to the process.
        cost: An estimate of the cost. Expensive jobs start first.
    """

    key: int
    payload: Any
    cost: float = 1.0


class LostJob(NamedTuple):
    """A job without a result, with the reason, such as "its process ended with exit code 3"."""

    reason: str


FinishedJob = tuple[Job, Any]
"""Job with its result, or with ``LostJob``."""


def supervise(
    setup: Setup,
    jobs: Sequence[Job],
    workers: int,
    timeout: float,
    *,
    method: str | None = None,
    preload: Sequence[str] = (),
) -> Generator[FinishedJob, None, None]:
    """Run jobs in processes, expensive jobs first, and yield each with its result or ``LostJob`` when it finishes.

    To end early, close the generator (``contextlib.closing``). This kills all processes and their child processes.

    Args:
        setup: A function that is called in each new process with the number of its slot, 0 to ``workers -
            1``, and returns the function that runs a payload. The function, payloads and results are pickled.
        jobs: The jobs.
        workers: The number of processes at a time, at least 1.
        timeout: The seconds of one job, after which its process is killed. A start has a longer limit.
        method: ``forkserver`` or ``spawn``; None for the fastest method that works on this machine.
        preload: Modules that the fork server imports once, so that processes start faster. Output during these
            imports is not redirected. A server that is already running does not import them.

    Raises:
        UserError: ``setup`` raised it, or no process can be set up.
        ValueError: ``workers`` is less than 1.
    """
    if workers < 1:
        raise ValueError("workers must be at least 1")
    job_limit = max(1, len(jobs))
    with ProcessPool(setup, min(workers, job_limit), timeout, method=method, preload=preload, most=job_limit) as run:
        for job in sorted(jobs, key=lambda job: -job.cost):
            run.put(job)
        run.close()
        while not run.is_done:
            yield from run.collect_finished()
        run.end(PATIENCE_SECONDS)


class ProcessPool:
    """Pool of processes that run jobs. Jobs may be added while others run.

    Jobs start in the order of their addition. Threads other than the one that calls
    ``collect_finished`` may only call ``put``, ``close`` and ``wake``. At the end of its context, the pool kills all
    processes and their child processes.

    Args:
        setup: See ``supervise``.
        workers: The number of processes at a time, at least 1.
        timeout: The seconds of one job, after which its process is killed.
        method: See ``supervise``.
        preload: See ``supervise``.
        most: The largest number of unfinished jobs.

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
        self._capacity = threading.Condition()
        self._is_open = True
        self._waiting: deque[Job] = deque()
        self._free = set(range(workers))
        self._failed_starts = dict.fromkeys(self._free, 0)
        self._timeout = timeout
        self._start_timeout = max(MIN_START_TIMEOUT_SECONDS, START_TIMEOUT_FACTOR * timeout)
        self._variables = collect_variables()
        self._selector = selectors.DefaultSelector()
        self._wake_sender, self._wake_receiver = socket.socketpair()
        for end in (self._wake_sender, self._wake_receiver):
            end.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        self._workers: list[Worker] = []
        self._dismissed: list[Worker] = []
        self._finished: list[FinishedJob] = []

    def __enter__(self) -> ProcessPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    # -- for any thread ----------------------------------------------------------------------------

    def put(self, job: Job, wait: float | None = None) -> bool:
        """Add a job when fewer than ``most`` jobs are unfinished.

        Args:
            job: The job.
            wait: The seconds to wait for free capacity; None to wait without a limit.

        Returns:
            True if the job was added; False if there was no capacity in time, or the pool is closed.
        """
        with self._capacity:
            self._capacity.wait_for(lambda: self._unfinished < self._most or not self._is_open, wait)
            if self._unfinished >= self._most or not self._is_open:
                return False
            self._unfinished += 1
            self._waiting.append(job)
        self.wake()
        return True

    def close(self) -> None:
        """Accept no more jobs. Processes end when all jobs are finished."""
        with self._capacity:
            self._is_open = False
            self._capacity.notify_all()
        self.wake()

    def wake(self) -> None:
        """Make ``collect_finished`` return early."""
        with contextlib.suppress(OSError):  # the pool has ended, or many wake-ups are pending
            self._wake_sender.send(b"\0")

    # -- for the thread that waits -----------------------------------------------------------------

    def set_up(self) -> None:
        """Start all processes before there are jobs, and wait until each is ready.

        Raises:
            UserError: ``setup`` raised it, or no process can be set up.
        """
        self._eager = True
        while self._free or not all(worker.is_set_up for worker in self._workers):
            self.collect_finished()

    @property
    def is_done(self) -> bool:
        """True if the pool is closed and all results were returned."""
        with self._capacity:
            return not self._is_open and not self._unfinished

    def collect_finished(self, within: float = math.inf) -> list[FinishedJob]:
        """Return the jobs that finished since the last call, each with its result or with ``LostJob``.

        Args:
            within: The longest time in seconds to wait for a finished job. The result may be empty before that.

        Raises:
            UserError: ``setup`` raised it, or no process can be set up.
        """
        self._fill_slots()
        for worker in self._wait_for_workers(within):
            self._process_message(worker)
        self._end_overdue()
        finished, self._finished = self._finished, []
        with self._capacity:
            self._unfinished -= len(finished)
            self._capacity.notify_all()
        return finished

    def end(self, patience: float = 0.0) -> None:
        """End all processes: wait ``patience`` seconds for dismissed processes, and kill the others immediately."""
        for worker in self._workers if patience else self._workers + self._dismissed:
            worker.kill()
        until = time.monotonic() + patience
        for worker in self._dismissed + self._workers:
            worker.end(max(0.0, until - time.monotonic()))
        self._dismissed, self._workers = [], []
        self.close()
        self._selector.close()
        self._wake_sender.close()
        self._wake_receiver.close()

    # -- starting and ending workers ---------------------------------------------------------------------

    def _fill_slots(self) -> None:
        """Give waiting jobs to idle workers, and start workers if more jobs are waiting than workers are starting."""
        for worker in [worker for worker in self._workers if worker.is_set_up and not worker.job]:
            self._assign_next_job(worker)
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
            patience: The seconds to wait until it ends by itself.
        """
        self._forget(worker)
        exit_reason, line = worker.end(patience)
        reason = (exit_reason or reason) + (f"; it last wrote: {line}" if line else "")
        if not worker.is_set_up:
            self._count_failed_start(worker.slot, reason)
            return
        self._free.add(worker.slot)
        if worker.job:
            self._finished.append((worker.job, LostJob(reason)))

    def _count_failed_start(self, slot: int, reason: str) -> None:
        self._failed_starts[slot] += 1
        if self._failed_starts[slot] < MAX_FAILED_STARTS:
            self._free.add(slot)
        elif not self._free and not self._workers:
            raise UserError(
                f"No process can be set up to run the jobs: {reason}.",
                "Remove that cause. If there is not enough memory, use fewer processes (-n).",
            )

    def _forget(self, worker: Worker) -> None:
        """Stop waiting for messages of a worker."""
        self._workers.remove(worker)
        for key in list(self._selector.get_map().values()):
            if key.data is worker:
                self._selector.unregister(key.fileobj)

    # -- messages of workers ---------------------------------------------------------------------------

    def _wait_for_workers(self, within: float) -> list[Worker]:
        """Wait for a message, the next deadline or a new job, and return the workers with messages or an end."""
        if self._finished or (not self._workers and not self._is_open):
            within = 0.0
        left = min((worker.deadline for worker in self._workers), default=math.inf) - time.monotonic()
        ready: dict[Worker, None] = {}
        for key, _ in self._selector.select(max(min(left, within, MAX_WAIT_SECONDS), 0.0)):
            if key.data is None:
                with contextlib.suppress(BlockingIOError):
                    self._wake_receiver.recv(4096)
                continue
            worker: Worker = key.data
            ready[worker] = None
            if key.fileobj is not worker.channel:
                worker.is_gone = True
        return list(ready)

    def _process_message(self, worker: Worker) -> None:
        """Receive the answer of a worker if it is complete, and give the worker the next job."""
        worker.flush()
        answer = worker.receive()
        if answer is not None:
            self._accept_answer(worker, answer)
            if not worker.is_gone:
                self._assign_next_job(worker)
        if worker.is_gone:
            self._lose(worker, "its process stopped answering", END_TIMEOUT_SECONDS)
        elif worker in self._workers:
            self._selector.modify(worker.channel, worker.events, worker)

    def _accept_answer(self, worker: Worker, answer: WorkerMessage) -> None:
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
            result = LostJob(f"{describe_exception(error)}, when its result was read")
        else:
            result = LostJob(result) if answer.kind is MessageKind.RAISED else result
        self._finished.append((worker.job, result))
        worker.job = None

    def _assign_next_job(self, worker: Worker) -> None:
        """Give a worker the next job. Without a job, the worker waits, or is dismissed if the pool is closed."""
        while self._waiting:
            job = self._waiting.popleft()
            try:
                payload = pickle.dumps(job.payload, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                self._finished.append((job, LostJob(f"{describe_exception(error)}, when it was sent")))
                continue
            worker.begin(job, payload, self._timeout)
            return
        if self._is_open:
            worker.deadline = math.inf
            return
        self._forget(worker)
        self._dismissed.append(worker)
        worker.dismiss()

    def _end_overdue(self) -> None:
        """Give up the workers whose deadline has passed."""
        now = time.monotonic()
        for worker in [worker for worker in self._workers if worker.deadline <= now]:
            limit = self._timeout if worker.is_set_up else self._start_timeout
            self._lose(worker, f"no answer within {limit:g} s")
