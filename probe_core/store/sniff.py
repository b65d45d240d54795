"""Which framework recorded a file, told from its first bytes."""

from __future__ import annotations

import re
from pathlib import Path

from probe_core.files.given import check_regular

_FRAMEWORK = re.compile(rb'"framework"\s*:\s*"([^"]*)"')
HEAD = 4096


def confidence(path: Path, framework: str, *, without_name: int = 0) -> int:
    """How sure a reader of ``framework`` is of a record file, from 0 to 100.

    Args:
        path: The record file.
        framework: The name that recorders write into the header.
        without_name: The answer where the header names no framework.
    """
    try:
        check_regular(path)
        found = framework_of(path)
    except OSError:
        return 0
    if found is None:
        return without_name
    return 100 if found == framework else 0


def framework_of(path: Path) -> str | None:
    """Return the framework that the header of a record file names; None if it names none.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        found = _FRAMEWORK.search(file.read(HEAD))
    return None if found is None else found.group(1).decode("utf-8", "replace")
