"""Matchers for runs whose names differ, and common names for runs of two frameworks.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_matching.gradients import owners
    from probe_matching.likeness import comparable
    from probe_matching.name_table import Dialect, Hint, NameTable, Overload, SlotMap
    from probe_matching.options import maps_names
    from probe_matching.specs import NameRule
    from probe_matching.user_maps import api_entries, with_entries
    from probe_matching.view import ALONE, View

__all__ = [
    "ALONE",
    "Dialect",
    "Hint",
    "NameRule",
    "NameTable",
    "Overload",
    "SlotMap",
    "View",
    "api_entries",
    "comparable",
    "maps_names",
    "owners",
    "with_entries",
]

__getattr__ = create_exporter(
    __name__,
    {
        "gradients": "owners",
        "likeness": "comparable",
        "name_table": "Dialect Hint NameTable Overload SlotMap",
        "options": "maps_names",
        "specs": "NameRule",
        "user_maps": "api_entries with_entries",
        "view": "ALONE View",
    },
)
