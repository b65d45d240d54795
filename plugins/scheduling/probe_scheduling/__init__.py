"""Workers in processes of this machine, and the scheduler that lets them compare several ranks at a time.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_scheduling.processes import (
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

__all__ = [
    "ISOLATION_FLAGS",
    "choose_start_method",
    "collect_variables",
    "end_with_parent",
    "hold_interrupts",
    "isolate_start",
    "mark_temporary_directory",
    "replace_variables",
    "start_resource_tracker",
    "unblock_interrupts",
]

__getattr__ = create_exporter(
    __name__,
    {
        "processes": "ISOLATION_FLAGS choose_start_method collect_variables end_with_parent hold_interrupts "
        "isolate_start mark_temporary_directory replace_variables start_resource_tracker unblock_interrupts",
    },
)
