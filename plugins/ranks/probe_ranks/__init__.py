"""The ranks and steps of runs, the scheduler that compares several at the same time, and worker processes.

Plugins of other distributions import the names of ``probe_ranks.api``, and nothing else of
this package: its modules may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_ranks import api

if TYPE_CHECKING:
    from probe_ranks.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
    former={
        "processes": "ISOLATION_FLAGS choose_start_method collect_variables end_with_parent hold_interrupts "
        "isolate_start mark_temporary_directory replace_variables start_resource_tracker "
        "unblock_interrupts",
    },
)
