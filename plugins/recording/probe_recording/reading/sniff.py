"""Recognition of the framework that a record file was recorded from."""

from __future__ import annotations

from pathlib import Path

from probe_core.files.user_files import check_regular
from probe_core.store.files import DEFAULT_RECORD_FILES
from probe_core.store.sniff import read_framework


def confidence(path: Path, framework: str, *, without_name: int = 0) -> int:
    """Return the confidence, from 0 to 100, that a record file was recorded by ``framework``.

    Args:
        path: The record file.
        framework: The name of the framework, as recorders write it into the header.
        without_name: The confidence for a ``dump.json`` or ``debug.json`` whose header names no framework.
    """
    try:
        check_regular(path)
        named = read_framework(path)
    except OSError:
        return 0
    if named is None:
        return without_name if path.name.endswith(DEFAULT_RECORD_FILES) else 0
    return 100 if named == framework else 0
