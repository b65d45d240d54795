"""Reservation of the time stamp in the names of result files, so that no two commands share it.

A second is taken if the directory holds a hidden claim file, which only one process can create, or a result
file of that second. A later command takes the next free second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import FILE_MODE, create_path_error, make_directory
from probe_core.model.plan import TIME_STAMP_FORMAT, TIME_STAMP_PATTERN

MAX_TRIED_SECONDS = 1000
"""Number of seconds that are tried before giving up."""
_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags for ``os.open`` that refuse links and do not wait for the reader of a pipe."""
_CLAIM_NAME = re.compile(rf"\.({TIME_STAMP_PATTERN})\.claim")


def add_second(time_stamp: str) -> str:
    """Return the time stamp one second later."""
    return (datetime.strptime(time_stamp, TIME_STAMP_FORMAT) + timedelta(seconds=1)).strftime(TIME_STAMP_FORMAT)


@contextmanager
def claim_time_stamp(
    directory: Path, time_stamp: str, parts: Collection[str] = (), *, is_resumed: bool = False
) -> Iterator[str]:
    """Reserve the first free time stamp from ``get_time_stamp`` on in ``directory`` while the block runs.

    Args:
        directory: The directory of the results.
        time_stamp: The earliest time stamp, as 14 digits.
        parts: Subdirectories that hold results as well.
        is_resumed: True to complete the results of exactly this time stamp.

    Raises:
        UserError: The directory is not writable, or the command to resume is still running.
    """
    make_directory(directory)
    _remove_stale(directory, time_stamp)
    for _ in range(MAX_TRIED_SECONDS):
        descriptor = _create_claim(directory, time_stamp, is_resumed)
        if descriptor is None:
            time_stamp = add_second(time_stamp)
            continue
        try:
            if is_resumed or not _is_taken(directory, time_stamp, parts):
                yield time_stamp
                return
        finally:
            os.close(descriptor)  # first, because Windows cannot remove an open file
            with suppress(OSError):
                _get_claim_path(directory, time_stamp).unlink(missing_ok=True)
        time_stamp = add_second(time_stamp)
    raise UserError(f"No new file can be created in {directory}.", "Give another directory with -o.")


def _get_claim_path(directory: Path, time_stamp: str) -> Path:
    return directory / f".{time_stamp}.claim"


def _create_claim(directory: Path, time_stamp: str, is_resumed: bool) -> int | None:
    """Create, open and lock the claim file; return None if another process has it."""
    path = _get_claim_path(directory, time_stamp)
    flags = os.O_WRONLY | os.O_CREAT | _SAFE_FLAGS | (0 if is_resumed else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except FileExistsError:
        return None
    except OSError as error:
        raise create_path_error(path, error) from None
    if _lock(descriptor) is False and is_resumed:
        os.close(descriptor)
        raise UserError(
            f"The comparison of {time_stamp} in {directory} is still running.",
            "Wait for it to end, or stop it and then resume it.",
        )
    return descriptor


def _is_taken(directory: Path, time_stamp: str, parts: Collection[str]) -> bool:
    """Return True if results of an earlier command carry the time stamp."""
    claim_name = _get_claim_path(directory, time_stamp).name
    for part in {"", *parts}:
        with suppress(FileNotFoundError, NotADirectoryError):
            if any(time_stamp in path.name and path.name != claim_name for path in (directory / part).iterdir()):
                return True
    return False


def _remove_stale(directory: Path, time_stamp: str) -> None:
    """Remove the claim files that killed processes left for earlier seconds."""
    with suppress(OSError):
        for path in directory.iterdir():
            match = _CLAIM_NAME.fullmatch(path.name)
            if match is None or match[1] >= time_stamp:
                continue
            with suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | _SAFE_FLAGS)
                try:
                    if _lock(descriptor):
                        path.unlink(missing_ok=True)
                finally:
                    os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a claim file; return False if another process holds it, None if it cannot be locked here."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
