"""Matchers for runs whose names differ, and common names for runs of two frameworks.

Plugins of other distributions import the names of ``probe_matching.api``, and nothing else of
this package: its modules may change between releases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from probe_core.exports import create_exporter
from probe_matching import api

if TYPE_CHECKING:
    from probe_matching.api import *  # noqa: F403

__all__ = api.__all__

__getattr__ = create_exporter(
    __name__,
    {"api": " ".join(api.__all__)},
    former={
        "gradients": "find_owners",
        "likeness": "select_comparable_slots",
        "options": "has_name_mappings",
        "user_maps": "add_entries create_api_entries",
        "view": "ALONE View",
    },
    renamed={
        "api_entries": "create_api_entries",
        "comparable": "select_comparable_slots",
        "maps_names": "has_name_mappings",
        "owners": "find_owners",
        "with_entries": "add_entries",
    },
)
