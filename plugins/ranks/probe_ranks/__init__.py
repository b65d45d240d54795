"""The ranks and steps of runs, the scheduler that compares several at the same time, and worker processes.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_ranks.layout import find_ranks, match_ranks, pair_runs, parse_rank_number
    from probe_ranks.processes import (
        ISOLATION_FLAGS,
        choose_start_method,
        collect_variables,
        end_with_parent,
        hold_interrupts,
        isolate_start,
        mark_temporary_directory,
        replace_variables,
        start_resource_tracker,
        unblock_interrupts,
    )
    from probe_ranks.specs import PAIR_RANKS, Executor, ExecutorSpec, Place, Pool

__all__ = [
    "ISOLATION_FLAGS",
    "PAIR_RANKS",
    "Executor",
    "ExecutorSpec",
    "Place",
    "Pool",
    "choose_start_method",
    "collect_variables",
    "end_with_parent",
    "find_ranks",
    "hold_interrupts",
    "isolate_start",
    "mark_temporary_directory",
    "match_ranks",
    "pair_runs",
    "parse_rank_number",
    "replace_variables",
    "start_resource_tracker",
    "unblock_interrupts",
]

__getattr__ = create_exporter(
    __name__,
    {
        "layout": "find_ranks match_ranks pair_runs parse_rank_number",
        "processes": "ISOLATION_FLAGS choose_start_method collect_variables end_with_parent hold_interrupts "
        "isolate_start mark_temporary_directory replace_variables start_resource_tracker unblock_interrupts",
        "specs": "PAIR_RANKS Executor ExecutorSpec Place Pool",
    },
)
