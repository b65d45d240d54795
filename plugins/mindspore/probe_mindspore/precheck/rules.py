"""What the pre-check knows of single APIs: ``rules.yaml``, by section."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def _all() -> dict[str, Any]:
    import yaml

    loaded: dict[str, Any] = yaml.safe_load(files(__package__).joinpath("rules.yaml").read_text("utf-8"))
    return loaded


def rules(section: str) -> Any:
    """A section of the rules, as the yaml file nests it."""
    return _all()[section]
