"""Detection of the framework of a record file from its first bytes."""

from __future__ import annotations

import re
from pathlib import Path

_FRAMEWORK = re.compile(rb'"framework"\s*:\s*"([^"]*)"')
MAX_HEADER_BYTES = 4096


def read_framework(path: Path) -> str | None:
    """Return the framework that the header of a record file names; None if there is none.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb") as file:
        match = _FRAMEWORK.search(file.read(MAX_HEADER_BYTES))
    return None if match is None else match.group(1).decode("utf-8", "replace")
