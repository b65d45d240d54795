"""The public names of probe-ranks, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_ranks.command.plan_run import run_plan
    from probe_ranks.command.run_paths import parse_run_paths
    from probe_ranks.layout import find_ranks, match_ranks, pair_runs, parse_rank_number
    from probe_ranks.specs import PAIR_RANKS, Executor, ExecutorSpec, Place, Pool

__all__ = [
    "PAIR_RANKS",
    "Executor",
    "ExecutorSpec",
    "Place",
    "Pool",
    "find_ranks",
    "match_ranks",
    "pair_runs",
    "parse_rank_number",
    "parse_run_paths",
    "run_plan",
]

__getattr__ = create_exporter(
    __name__,
    {
        "command.plan_run": "run_plan",
        "command.run_paths": "parse_run_paths",
        "layout": "find_ranks match_ranks pair_runs parse_rank_number",
        "specs": "PAIR_RANKS Executor ExecutorSpec Place Pool",
    },
)
