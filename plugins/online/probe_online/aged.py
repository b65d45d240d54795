"""Age limit of a shared directory: files of trainings that ended or vanished days ago are removed."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

DAY_SECONDS = 86400.0

_FILE_NAME = re.compile(r"\.?([0-9a-f]{32})\.r(\d{1,7})\.(.+)")
_CALL = re.compile(r"\d{10,16}\.prb(\.[0-9a-f]{16}\.work)?")
_OTHER_NAME = re.compile(r"(hello|tally|end)\.prb|(\d{10,16}|hello|tally|end)\.prb\.part|[0-9a-f]{16}\.settled")


class SenderPlace(NamedTuple):
    """The sender of a file: a rank of a training."""

    session: str
    rank: int


class RemovalCounts(NamedTuple):
    """Numbers of removed files.

    Attributes:
        files: Number of all removed files.
        calls: Number of removed files that held a call which no receiver has judged.
    """

    files: int
    calls: int


def find_senders_with_calls(names: Iterable[str]) -> set[SenderPlace]:
    """Return the senders that have a claimed or unclaimed call in a shared directory."""
    parsed = filter(None, map(_parse_name, names))
    return {place for place, is_call in parsed if is_call}


def remove_aged(directory: Path, days: float, excluded: Collection[SenderPlace]) -> RemovalCounts:
    """Remove the files of senders that have written nothing to a shared directory for some days.

    The age of a file is measured with the clock of the file system: a new file is written to read it. Files that
    were not written by a sender or receiver are left alone, and so are files that a receiver set aside.

    Args:
        directory: The directory.
        days: The age at which files are removed.
        excluded: Senders whose files stay.

    Returns:
        The numbers of removed files; 0 if the directory cannot be read or written.
    """
    files: dict[SenderPlace, list[tuple[str, bool]]] = {}
    newest: dict[SenderPlace, float] = {}
    try:
        for entry in os.scandir(directory):
            parsed = _parse_name(entry.name)
            if parsed is None:
                continue
            place, is_call = parsed
            with suppress(OSError):
                newest[place] = max(newest.get(place, 0.0), entry.stat(follow_symlinks=False).st_mtime)
                files.setdefault(place, []).append((entry.name, is_call))
        now = _read_directory_time(directory) if files else 0.0
    except OSError:
        return RemovalCounts(0, 0)
    count = calls = 0
    for place, sender_files in files.items():
        if place in excluded or now - newest[place] <= days * DAY_SECONDS:
            continue
        for name, is_call in sender_files:
            with suppress(OSError):
                (directory / name).unlink()
                count, calls = count + 1, calls + is_call
    return RemovalCounts(count, calls)


def _parse_name(name: str) -> tuple[SenderPlace, bool] | None:
    """Return the sender of a file and whether the file holds a call; None for a file of another kind."""
    match = _FILE_NAME.fullmatch(name)
    if match is None:
        return None
    is_call = _CALL.fullmatch(match[3]) is not None
    return (SenderPlace(match[1], int(match[2])), is_call) if is_call or _OTHER_NAME.fullmatch(match[3]) else None


def _read_directory_time(directory: Path) -> float:
    """Return the current time by the clock of the file system, in seconds."""
    with tempfile.NamedTemporaryFile(dir=directory, prefix=".probe-clock-") as file:
        file.write(b"now")
        file.flush()
        return os.fstat(file.fileno()).st_mtime
