"""Where comparisons run: in threads of this process or in processes of their own, built in like plugins.

An executor gives a pool with the interface of ``concurrent.futures``, which cluster engines have as well.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from probe_core import engine
from probe_core.errors import UserError

T = TypeVar("T")


class Place(Enum):
    """Where the workers of a pool are."""

    HERE = "in this process"
    MACHINE = "in processes of this machine"
    CLUSTER = "on other machines, or as good as"


PRELOADED = ("probe_core.worker", "probe_core.pipeline", "ml_dtypes", "yaml")
"""What every process of a pool needs and nothing in the environment changes, imported once in the server that
processes are forked from."""


LONGEST_DIRECTORY = 70
"""Characters of the temporary directory in which the server that processes are forked from finds room for its
socket, whose path may have some hundred."""


class Pool(NamedTuple):
    """Workers, and how many calls they take at a time."""

    executor: Executor
    size: int


class Threads:
    """Threads of this process: no start to wait for, one interpreter for all."""

    place = Place.HERE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """A pool of ``jobs`` threads."""
        _refuse(scheduler, "threads")
        jobs = jobs or engine.cores()
        return Pool(ThreadPoolExecutor(jobs, "probe"), jobs)


class Processes:
    """Processes of this machine, each with an interpreter of its own."""

    place = Place.MACHINE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """A pool of ``jobs`` processes."""
        _refuse(scheduler, "processes")
        jobs = jobs or engine.cores()
        can_fork = hasattr(os, "fork") and len(tempfile.gettempdir()) <= LONGEST_DIRECTORY
        context = multiprocessing.get_context("forkserver" if can_fork else "spawn")
        if can_fork:
            context.set_forkserver_preload(list(PRELOADED))
        ours = {name: text for name, text in os.environ.items() if name.startswith("PROBE_")}
        return Pool(_Workers(jobs, context, prepare_process, (ours,)), jobs)


class _Workers(ProcessPoolExecutor):
    """Processes that do not import the script that started them: what they are asked to do, we bring along.

    So a script may compare without the guard that Python asks of those that start processes.
    """

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a process call the function; processes start here, as they are needed."""
        main = sys.modules["__main__"]
        names = ("__file__", "__spec__")
        hidden: dict[str, Any] = {name: main.__dict__[name] for name in names if name in main.__dict__}
        for name in hidden:
            del main.__dict__[name]
        main.__spec__ = None
        try:
            return super().submit(function, *args, **kwargs)
        finally:
            main.__dict__.update(hidden)


def _refuse(scheduler: str | None, name: str) -> None:
    if scheduler is not None:
        raise UserError(
            f"The executor {name} has no scheduler.", "Leave --scheduler out, or choose --executor dask."
        )


def tune_process() -> None:
    """Make a process that does nothing else quick at comparing.

    Rows make few cycles, so searching for them rarely is enough. No metric of ours multiplies matrices,
    so OpenBLAS need not start the threads that would idle in a loop from numpy's import on.
    """
    gc.set_threshold(50_000, 20, 100)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


# -- in a process of a pool ------------------------------------------------------------------------


class _Busy:
    """Whether the process is at a call now, which Ctrl-C ends as it ends one in the main process."""

    now = False


def prepare_process(variables: Mapping[str, str]) -> None:
    """Set a new process up: Ctrl-C ends the call that it is at, and nothing else.

    ``variables`` are ours in the environment as they are now; the server may have started with others.
    """
    for name in [name for name in os.environ if name.startswith("PROBE_")]:
        del os.environ[name]
    os.environ.update(variables)
    threading.Thread(target=_end_with_parent, name="probe-parent", daemon=True).start()
    tune_process()
    engine.use_threads(1)
    with contextlib.suppress(ValueError):  # not in the main thread of its process
        signal.signal(signal.SIGINT, _interrupted)


def _end_with_parent() -> None:
    """End with whoever sends the calls: killed, they leave their workers waiting for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _interrupted(*_: Any) -> None:
    if _Busy.now:
        raise KeyboardInterrupt


@contextmanager
def busy() -> Iterator[None]:
    """While the block runs, Ctrl-C ends it with KeyboardInterrupt."""
    _Busy.now = True
    try:
        yield
    finally:
        _Busy.now = False
