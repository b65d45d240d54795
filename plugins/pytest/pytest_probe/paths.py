"""The paths of golden files."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

DIRECTORY = "goldens"
"""The directory of golden files, next to the test files."""
MAX_NAME_CHARACTERS = 100
"""Largest number of characters of a file's name without suffix; longer names are cut."""
HASH_CHARACTERS = 8


def find_golden_path(test_file: Path, node_id: str) -> Path:
    """Return the golden file of a test: ``goldens/<test module>/<class.test name>.json``.

    The parameters of a test follow its name. Characters that some file systems do not allow are replaced, and a
    hash of the whole name then keeps the names of two tests apart.

    Args:
        test_file: The file of the test.
        node_id: The node id of the test.
    """
    name = ".".join(node_id.split("::")[1:])
    test, _, parameters = name.partition("[")
    plain = f"{test}-{parameters[:-1]}" if parameters else test
    safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain)[:MAX_NAME_CHARACTERS]
    if safe != plain or parameters != parameters.lower():
        safe += f"-{hashlib.sha256(name.encode()).hexdigest()[:HASH_CHARACTERS]}"
    return test_file.parent / DIRECTORY / test_file.stem / f"{safe}.json"


def format_path(path: Path, root: Path) -> str:
    """Return a path as seen from a root directory, or whole if it is elsewhere."""
    return os.path.relpath(path, root) if path.is_relative_to(root) else str(path)
