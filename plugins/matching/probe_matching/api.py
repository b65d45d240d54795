"""The public names of probe-matching, each imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter

if TYPE_CHECKING:
    from probe_matching.name_table import Dialect, Hint, NameTable, Overload, SlotMap
    from probe_matching.specs import NameRule

__all__ = [
    "Dialect",
    "Hint",
    "NameRule",
    "NameTable",
    "Overload",
    "SlotMap",
]

__getattr__ = create_exporter(
    __name__,
    {
        "name_table": "Dialect Hint NameTable Overload SlotMap",
        "specs": "NameRule",
    },
)
