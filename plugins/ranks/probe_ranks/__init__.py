"""The ranks and steps of runs, the scheduler that compares several at the same time, and worker processes.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_ranks.layout import find_ranks as find_ranks
    from probe_ranks.layout import match_ranks as match_ranks
    from probe_ranks.layout import pair_runs as pair_runs
    from probe_ranks.layout import parse_rank_number as parse_rank_number
    from probe_ranks.processes import ISOLATION_FLAGS as ISOLATION_FLAGS
    from probe_ranks.processes import choose_start_method as choose_start_method
    from probe_ranks.processes import collect_variables as collect_variables
    from probe_ranks.processes import end_with_parent as end_with_parent
    from probe_ranks.processes import hold_interrupts as hold_interrupts
    from probe_ranks.processes import isolate_start as isolate_start
    from probe_ranks.processes import mark_temporary_directory as mark_temporary_directory
    from probe_ranks.processes import replace_variables as replace_variables
    from probe_ranks.processes import start_resource_tracker as start_resource_tracker
    from probe_ranks.processes import unblock_interrupts as unblock_interrupts
    from probe_ranks.specs import Executor as Executor
    from probe_ranks.specs import ExecutorSpec as ExecutorSpec
    from probe_ranks.specs import Place as Place
    from probe_ranks.specs import Pool as Pool


__getattr__ = create_exporter(
    __name__,
    {
        "layout": "find_ranks match_ranks pair_runs parse_rank_number",
        "processes": "ISOLATION_FLAGS choose_start_method collect_variables end_with_parent hold_interrupts "
        "isolate_start mark_temporary_directory replace_variables start_resource_tracker unblock_interrupts",
        "specs": "Executor ExecutorSpec Place Pool",
    },
)
