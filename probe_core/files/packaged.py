"""Data files that packages bring along."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any


@cache
def load_yaml(package: str, name: str) -> Any:
    """Return the content of a YAML file of a package, which callers share and must not change."""
    import yaml  # libyaml reads it ten times as fast if it is there

    text = files(package).joinpath(name).read_text("utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
