"""Matching: pairs calls whose names differ, and runs of two frameworks by common names.

What this module exports is what plugins build on; each name is imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import exporter

if TYPE_CHECKING:
    from probe_matching.likeness import comparable
    from probe_matching.name_table import Dialect, Hint, NameTable, Overload, SlotMap
    from probe_matching.specs import NameRule
    from probe_matching.user_maps import api_entries, with_entries

__all__ = [
    "Dialect",
    "Hint",
    "NameRule",
    "NameTable",
    "Overload",
    "SlotMap",
    "api_entries",
    "comparable",
    "with_entries",
]

__getattr__ = exporter(
    __name__,
    {
        "likeness": "comparable",
        "name_table": "Dialect Hint NameTable Overload SlotMap",
        "specs": "NameRule",
        "user_maps": "api_entries with_entries",
    },
)
