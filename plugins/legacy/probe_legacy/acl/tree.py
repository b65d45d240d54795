"""The dumps in a directory: files by their names, with long names looked up in ``mapping.csv``."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from probe_core.errors import UserError
from probe_legacy.acl.dump import NameParts, parse_dump_name
from probe_legacy.acl.header import LENGTH, MAX_HEADER_BYTES

MAPPING_FILE = "mapping.csv"
MAX_MAPPING_BYTES = 64 << 20
"""Limit on the bytes of a ``mapping.csv`` that is read."""
NON_DUMP_SUFFIXES = {
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


class DumpCandidate(NamedTuple):
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


def find_dumps(path: Path) -> list[DumpCandidate]:
    """Return the files at or below a path that may be dumps, in the order of their paths.

    A file with another name counts if it begins with the length of a header.

    Raises:
        UserError: There is none, or the path cannot be read.
    """
    if path.is_file():
        name = _read_mapping(path.parent).get(path.name, path.name)
        return [DumpCandidate(path, Path(), name, parse_dump_name(name))]
    if not path.is_dir():
        raise UserError(f"There is no file or directory {path}.", "Check the path.")
    candidates = list(_walk(path))
    if not candidates:
        raise UserError(
            f"There is no ACL dump in {path}.",
            "Give the dump_path of dump.json, a directory below it, or a file such as Add.Add.45.0.1675157077183551.",
        )
    return candidates


def _walk(root: Path) -> Iterator[DumpCandidate]:
    def refuse(error: OSError) -> None:
        raise UserError(
            f"{error.filename} cannot be read: {error.strerror or error}.", "Check its permissions."
        ) from None

    for folder, below, names in os.walk(root, onerror=refuse):
        below.sort()
        original = _read_mapping(Path(folder)) if MAPPING_FILE in names else {}
        for name in sorted(names):
            path, device_name = Path(folder, name), original.get(name, name)
            parts = parse_dump_name(device_name)
            if (
                parts or (Path(name).suffix.lower() not in NON_DUMP_SUFFIXES and _has_dump_header(path))
            ) and path.is_file():
                yield DumpCandidate(path, path.parent.relative_to(root), device_name, parts)


def _has_dump_header(path: Path) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            length = int.from_bytes(file.read(LENGTH), "little")
            return 0 < length <= min(MAX_HEADER_BYTES, file.seek(0, 2) - LENGTH)
    except OSError:
        return False


def _read_mapping(folder: Path) -> dict[str, str]:
    """Return the long names of files by the names that they got instead; empty if there are none."""
    path = folder / MAPPING_FILE
    try:
        if not path.is_file() or path.stat().st_size > MAX_MAPPING_BYTES:
            return {}
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            return {row[0]: row[1] for row in csv.reader(file) if len(row) > 1}
    except (OSError, csv.Error):
        return {}
