"""Matchers for runs whose names differ, and common names for runs of two frameworks.

Plugins may use what this module exports; each name is imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_matching.gradients import owners as owners
    from probe_matching.likeness import comparable as comparable
    from probe_matching.name_table import Dialect as Dialect
    from probe_matching.name_table import Hint as Hint
    from probe_matching.name_table import NameTable as NameTable
    from probe_matching.name_table import Overload as Overload
    from probe_matching.name_table import SlotMap as SlotMap
    from probe_matching.options import maps_names as maps_names
    from probe_matching.specs import NameRule as NameRule
    from probe_matching.user_maps import api_entries as api_entries
    from probe_matching.user_maps import with_entries as with_entries
    from probe_matching.view import ALONE as ALONE
    from probe_matching.view import View as View


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
