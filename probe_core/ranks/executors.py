"""Where comparisons run: in threads of this process or in processes of their own, built in like plugins.

An executor gives a pool with the interface of ``concurrent.futures``, which cluster engines have as well.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from probe_core import engine
from probe_core.errors import UserError
from probe_core.plugins.specs import Place, Pool
from probe_core.ranks import processes

T = TypeVar("T")


PRELOADED = ("probe_core.ranks.worker", "probe_core.flow.pipeline", "ml_dtypes", "yaml")
"""What every process of a pool needs and nothing in the environment changes, imported once in the server that
processes are forked from."""


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
        method = processes.start_method()
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            processes.mark_temporary()
            context.set_forkserver_preload(list(PRELOADED))
        return Pool(_Workers(jobs, context, prepare_process, (processes.our_variables(),)), jobs)


class _Workers(ProcessPoolExecutor):
    """Processes that do not import the script that started them; we bring along what they are asked to do."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Have a process call the function; processes start here, as they are needed."""
        with processes.hidden_main():
            return super().submit(function, *args, **kwargs)


def _refuse(scheduler: str | None, name: str) -> None:
    if scheduler is not None:
        raise UserError(
            f"The executor {name} has no scheduler.",
            "Leave --scheduler out, or choose an executor that has one; see probe plugins.",
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
    from probe_core.plugins.manager import PluginWarning

    processes.take_variables(variables)
    processes.end_with_parent()
    warnings.simplefilter("ignore", PluginWarning)  # the parent has said it already
    tune_process()
    engine.use_threads(1)
    with contextlib.suppress(ValueError):  # not in the main thread of its process
        signal.signal(signal.SIGINT, _interrupted)
    processes.let_interrupts_in()


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
