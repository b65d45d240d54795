"""Hooks of probe-ranks: commands, options of compare, the scheduler of several ranks, and executors."""

from __future__ import annotations

from probe_core.plugins.hookspecs import hookimpl
from probe_core.plugins.specs import CommandSpec, Option, OptionSpec, SchedulerSpec
from probe_ranks.specs import PAIR_RANKS, ExecutorSpec

SELECTION_OPTIONS = (
    Option("steps", ("--step",), "Compare these steps only: 0,2-4.", "numbers", python_name="steps"),
    Option("ranks", ("--rank",), "Compare these ranks of the target only: 0-3,8.", "numbers", python_name="ranks"),
    Option(
        "pair_ranks",
        ("--pair-ranks",),
        "Pair ranks by number or in order.  [default: by number; in order if both runs have equally many "
        "and no number in common]",
        "text",
        choices=PAIR_RANKS,
    ),
)
WORKER_OPTIONS = (
    Option("executor", ("--executor",), "Where to run comparisons: threads, processes, …", "text", "NAME"),
    Option("scheduler", ("--scheduler",), "Scheduler of a cluster, such as tcp://host:8786.", "text", "ADDRESS"),
    Option("resume", ("--resume",), "Resume an interrupted comparison; finished ranks are kept."),
)


@hookimpl
def probe_commands() -> list[CommandSpec]:
    """Return the commands that every installation has."""
    return [
        CommandSpec(
            "compare",
            "Compare two recorded runs and say where they diverge first.",
            "probe_ranks.command.compare:compare",
        ),
        CommandSpec(
            "plugins",
            "List the installed plugins, their contributions, and what is broken.",
            "probe_ranks.command.plugins:plugins",
        ),
    ]


@hookimpl
def probe_schedulers() -> list[SchedulerSpec]:
    """Return the scheduler that distributes comparisons over the workers of an executor."""
    summary = "several ranks at the same time, resumed after an interruption"
    return [SchedulerSpec("workers", summary, "probe_ranks.scheduler:WorkerScheduler")]


@hookimpl
def probe_executors() -> list[ExecutorSpec]:
    """Return the executors that need no cluster."""
    return [
        ExecutorSpec("threads", "threads of this process", "probe_ranks.executors:ThreadExecutor"),
        ExecutorSpec("processes", "processes of this machine", "probe_ranks.executors:ProcessExecutor"),
    ]


@hookimpl
def probe_options() -> list[OptionSpec]:
    """Return the options of compare that choose ranks and workers."""
    return [
        OptionSpec(
            "selection",
            "which steps and ranks are compared, and with which",
            "probe_ranks.options:select_ranks",
            command="compare",
            options=SELECTION_OPTIONS,
            defaults={"steps": (), "ranks": (), "pair_ranks": PAIR_RANKS[0], "step_offset": 0},
        ),
        OptionSpec(
            "workers",
            "where several ranks are compared",
            "probe_ranks.options:set_workers",
            command="compare",
            options=WORKER_OPTIONS,
            defaults={"executor": None, "scheduler": None, "resume": False},
        ),
    ]
