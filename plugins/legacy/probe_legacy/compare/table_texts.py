"""Columns, texts and thresholds of the older tools' tables, read from ``tables.yaml``."""

from __future__ import annotations

from typing import Any

from probe_core.files.packaged import load_yaml


def get_table_entry(table: str, name: str) -> Any:
    """Return an entry of ``tables.yaml``."""
    return load_yaml(__package__, "tables.yaml")[table][name]


def get_message(name: str, **fields: object) -> str:
    """Return a text of the tables."""
    text: str = get_table_entry("messages", name)
    return text.format(**fields)
