"""The dumps in a directory: files by their names, with long names looked up in ``mapping.csv``."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError
from probe_legacy.acl.dump import NameParts, parts_of
from probe_legacy.acl.header import LARGEST_HEADER, LENGTH

MAPPING = "mapping.csv"
LARGEST_MAPPING = 64 << 20
"""Limit on the bytes of a ``mapping.csv`` that is read."""
OTHERS = {
    ".npy",
    ".npz",
    ".json",
    ".csv",
    ".txt",
    ".log",
    ".pt",
    ".pkl",
    ".bin",
    ".yaml",
    ".py",
    ".part",
    ".html",
    ".xlsx",
}
"""Suffixes of files that are no dumps."""


class Found(NamedTuple):
    """A file that may be a dump.

    Attributes:
        path: The file.
        folder: Its directory, relative to the one that was given.
        name: The name that the device gave it: its own, or the one in ``mapping.csv``.
        parts: The parts of that name; None if it is not that of a dump.
    """

    path: Path
    folder: Path
    name: str
    parts: NameParts | None


def dumps_in(given: Path) -> list[Found]:
    """Return the files at or below a path that may be dumps, in the order of their paths.

    A file whose name is not that of a dump counts if its length begins with that of a header.

    Raises:
        UserError: There is none, or the path cannot be read.
    """
    if given.is_file():
        name = _mapping(given.parent).get(given.name, given.name)
        return [Found(given, Path(), name, parts_of(name))]
    if not given.is_dir():
        raise UserError(f"There is no file or directory {given}.", "Check the path.")
    found = list(_walk(given))
    if not found:
        raise UserError(
            f"There is no ACL dump in {given}.",
            "Give the dump_path of dump.json, a directory below it, or a file such as "
            "Add.Add.45.0.1675157077183551.",
        )
    return found


def _walk(given: Path) -> Iterator[Found]:
    def refuse(error: OSError) -> None:
        raise UserError(
            f"{error.filename} cannot be read: {error.strerror or error}.", "Check its permissions."
        ) from None

    for folder, below, names in os.walk(given, onerror=refuse):
        below.sort()
        original = _mapping(Path(folder)) if MAPPING in names else {}
        for name in sorted(names):
            path, told = Path(folder, name), original.get(name, name)
            parts = parts_of(told)
            if (
                parts or (Path(name).suffix.lower() not in OTHERS and _begins_like_a_dump(path))
            ) and path.is_file():
                yield Found(path, path.parent.relative_to(given), told, parts)


def _begins_like_a_dump(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            return 0 < length <= min(LARGEST_HEADER, file.seek(0, 2) - LENGTH)
    except OSError:
        return False


def _mapping(folder: Path) -> dict[str, str]:
    """Return the long names of files by the names that they got instead; empty if there are none."""
    path = folder / MAPPING
    try:
        if not path.is_file() or path.stat().st_size > LARGEST_MAPPING:
            return {}
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return {row[0]: row[1] for row in csv.reader(file) if len(row) > 1}
    except (OSError, csv.Error):
        return {}
