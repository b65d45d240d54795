"""Reader of ``thresholds.yaml``."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _all() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the loader in C is ten times as fast
    text = files(__package__).joinpath("thresholds.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def thresholds(section: str) -> Any:
    """Return the thresholds of one policy: a section of the file, nested as it is there."""
    return _all()[section]
