"""Built-in executors: threads of this process, or processes of this machine.

An executor opens a pool with the interface of ``concurrent.futures``, which cluster engines have as well.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from probe_core import engine
from probe_core.errors import UserError
from probe_ranks import processes
from probe_ranks.specs import Place, Pool

T = TypeVar("T")

PRELOADED_MODULES = ("probe_ranks.worker", "probe_core.flow.pipeline", "ml_dtypes", "yaml")
"""Modules that every process needs and that do not depend on the environment; the server that processes are
forked from imports them once."""


class ThreadExecutor:
    """Executor on threads of this process, which start at once but share an interpreter."""

    place = Place.HERE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Return a pool of ``jobs`` threads; 0 for one per processor."""
        _refuse_scheduler(scheduler, "threads")
        jobs = jobs or engine.count_cores()
        return Pool(ThreadPoolExecutor(jobs, "probe"), jobs)


class ProcessExecutor:
    """Executor on processes of this machine, each with its own interpreter."""

    place = Place.MACHINE

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Return a pool of ``jobs`` processes; 0 for one per processor."""
        _refuse_scheduler(scheduler, "processes")
        jobs = jobs or engine.count_cores()
        method = processes.choose_start_method()
        context = multiprocessing.get_context(method)
        if method == "forkserver":
            processes.mark_temporary_directory()
            context.set_forkserver_preload(list(PRELOADED_MODULES))
        processes.start_resource_tracker()
        return Pool(_IsolatedProcessPool(jobs, context, prepare_process, (processes.collect_variables(),)), jobs)


class _IsolatedProcessPool(ProcessPoolExecutor):
    """A process pool whose processes do not import the script that started them."""

    def submit(self, function: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call the function in a process, which starts when it is first needed."""
        with processes.isolate_start(), processes.hold_interrupts():  # until prepare_process lets them in
            return super().submit(function, *args, **kwargs)


def _refuse_scheduler(scheduler: str | None, name: str) -> None:
    if scheduler is not None:
        raise UserError(
            f"The executor {name} has no scheduler.",
            "Leave --scheduler out, or choose an executor that has one with --executor; see probe plugins.",
        )


# -- in a process of a pool ------------------------------------------------------------------------


class _BusyFlag:
    """A flag that is set while the process makes a call, which Ctrl-C then ends."""

    now = False


def prepare_process(variables: Mapping[str, str]) -> None:
    """Prepare a new process of a pool, in which Ctrl-C ends only the current call.

    Args:
        variables: Probe's environment variables; the server may have started with other values.
    """
    from probe_core.plugins.manager import PluginWarning

    with contextlib.suppress(ValueError):  # not in the main thread of its process
        signal.signal(signal.SIGINT, _handle_interrupt)
    processes.replace_variables(variables)
    processes.end_with_parent()
    warnings.simplefilter("ignore", PluginWarning)  # the parent process has warned already
    engine.tune_process()
    engine.use_threads(1)
    processes.unblock_interrupts()


def _handle_interrupt(*_: Any) -> None:
    if _BusyFlag.now:
        raise KeyboardInterrupt


@contextmanager
def allow_interrupts() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt in a worker process while the block runs."""
    _BusyFlag.now = True
    try:
        yield
    finally:
        _BusyFlag.now = False
