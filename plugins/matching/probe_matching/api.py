"""The public names of probe-matching, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_matching.gradients import find_owners
    from probe_matching.name_table import Dialect, Hint, NameTable, Overload, SlotMap
    from probe_matching.options import has_name_mappings
    from probe_matching.renamed_run import RenamedRun, is_unpaired
    from probe_matching.specs import NameRule
    from probe_matching.user_maps import add_entries, create_api_entries

__all__ = [
    "Dialect",
    "Hint",
    "NameRule",
    "NameTable",
    "Overload",
    "RenamedRun",
    "SlotMap",
    "add_entries",
    "create_api_entries",
    "find_owners",
    "has_name_mappings",
    "is_unpaired",
]

__getattr__ = create_exporter(
    __name__,
    {
        "gradients": "find_owners",
        "name_table": "Dialect Hint NameTable Overload SlotMap",
        "options": "has_name_mappings",
        "renamed_run": "RenamedRun is_unpaired",
        "specs": "NameRule",
        "user_maps": "add_entries create_api_entries",
    },
)
