"""Columns, texts and thresholds of the older tools' tables, read from ``tables.yaml``."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import Any


@lru_cache(maxsize=1)
def _load_tables() -> dict[str, dict[str, Any]]:
    import yaml

    loaded: dict[str, dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("tables.yaml").read_text("utf-8"))
    return loaded


def get_entry(table: str, name: str) -> Any:
    """Return an entry of ``tables.yaml``."""
    return _load_tables()[table][name]


def get_message(name: str, **fields: object) -> str:
    """Return a text of the tables."""
    text: str = get_entry("messages", name)
    return text.format(**fields)
