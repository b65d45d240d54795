"""The thresholds of ``thresholds.yaml``, by section."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _all() -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("thresholds.yaml").read_text("utf-8"))
    return loaded


def thresholds(section: str) -> Any:
    """The thresholds of one policy, as the yaml file nests them."""
    return _all()[section]
