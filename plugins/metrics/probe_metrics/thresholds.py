"""The thresholds of ``thresholds.yaml``, by section."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _all() -> dict[str, Any]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C reads ten times as fast
    text = files(__package__).joinpath("thresholds.yaml").read_text("utf-8")
    loaded: dict[str, Any] = yaml.load(text, Loader=loader)
    return loaded


def thresholds(section: str) -> Any:
    """The thresholds of one policy, as the yaml file nests them."""
    return _all()[section]
