"""Reader of ``thresholds.yaml``."""

from __future__ import annotations

from typing import Any

from probe_core.files.packaged import load_yaml


def load_thresholds(section: str) -> Any:
    """Return the thresholds of a policy, which are a section of the file."""
    return load_yaml(__package__, "thresholds.yaml")[section]
