"""Telling whether a record file is of a reader's framework."""

from __future__ import annotations

from pathlib import Path

from probe_core.files.given import check_regular
from probe_core.store.files import FILES
from probe_core.store.sniff import framework_of


def confidence(path: Path, framework: str, *, without_name: int = 0) -> int:
    """Return a number from 0 to 100: is a record file of ``framework``?

    Args:
        path: The record file.
        framework: The name that recorders write into the header.
        without_name: The answer for a ``dump.json`` or ``debug.json`` whose header names no framework.
    """
    try:
        check_regular(path)
        found = framework_of(path)
    except OSError:
        return 0
    if found is None:
        return without_name if path.name.endswith(FILES) else 0
    return 100 if found == framework else 0
