"""Reader of ``thresholds.yaml``."""

from __future__ import annotations

from functools import cache
from typing import Any

from probe_core.files.packaged import load_yaml


@cache
def _all() -> dict[str, Any]:
    loaded: dict[str, Any] = load_yaml(__package__, "thresholds.yaml")
    return loaded


def load_thresholds(section: str) -> Any:
    """Return the thresholds of one policy: a section of the file, nested as it is there."""
    return _all()[section]
