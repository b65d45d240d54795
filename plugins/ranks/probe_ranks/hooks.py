"""Hooks of probe-ranks: the scheduler of several ranks, and the executors that work on every machine."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import ExecutorSpec, SchedulerSpec


@hookimpl
def probe_schedulers() -> list[SchedulerSpec]:
    """Return the scheduler that distributes comparisons over the workers of an executor."""
    summary = "several ranks at the same time, resumed after an interruption"
    return [SchedulerSpec("workers", summary, "probe_ranks.scheduler:WorkerScheduler")]


@hookimpl
def probe_executors() -> list[ExecutorSpec]:
    """Return the executors that work on every machine."""
    return [
        ExecutorSpec("threads", "threads of this process", "probe_ranks.executors:ThreadExecutor"),
        ExecutorSpec("processes", "processes of this machine", "probe_ranks.executors:ProcessExecutor"),
    ]
