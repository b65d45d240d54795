"""The time stamp in the names of result files, held by one command at a time.

A hidden file that only one process can create says that a second is taken in a directory; a result file of
that second says so as well. The command that comes later takes the next second that is free.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import FILE_MODE, make_directory, refused

FORM = "%Y%m%d%H%M%S"
MOST = 1000
"""Seconds that are tried; so many comparisons of one second are none that a person starts."""
_SAFELY = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Flags that open no link, and wait for no reader of a pipe."""
_CLAIM = re.compile(r"\.(\d{14})\.claim")


def next_second(time_stamp: str) -> str:
    """The time stamp one second later."""
    return (datetime.strptime(time_stamp, FORM) + timedelta(seconds=1)).strftime(FORM)


@contextmanager
def claimed(
    directory: Path, time_stamp: str, parts: Collection[str] = (), *, resumes: bool = False
) -> Iterator[str]:
    """Hold a time stamp in ``directory`` while the block runs: the first free one from ``time_stamp`` on.

    Args:
        directory: Where the results go.
        time_stamp: 14 digits; the earliest that the results may carry.
        parts: Directories below it that results go to as well.
        resumes: The results of this very stamp are completed, so that those that are there do not count.

    Raises:
        UserError: The directory takes no files; or a running command holds a stamp that is to be resumed.
    """
    make_directory(directory)
    _remove_stale(directory, time_stamp)
    for _ in range(MOST):
        descriptor = _created(directory, time_stamp, resumes)
        if descriptor is None:
            time_stamp = next_second(time_stamp)
            continue
        try:
            if resumes or not _is_taken(directory, time_stamp, parts):
                yield time_stamp
                return
        finally:
            os.close(descriptor)  # first: Windows removes no file that is open
            with suppress(OSError):
                _path(directory, time_stamp).unlink(missing_ok=True)
        time_stamp = next_second(time_stamp)
    raise UserError(f"{directory} takes no new files.", "Give another directory with -o.")


def _path(directory: Path, time_stamp: str) -> Path:
    return directory / f".{time_stamp}.claim"


def _created(directory: Path, time_stamp: str, resumes: bool) -> int | None:
    """The claim, created, open and locked; None where another process has it."""
    path = _path(directory, time_stamp)
    flags = os.O_WRONLY | os.O_CREAT | _SAFELY | (0 if resumes else os.O_EXCL)
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except FileExistsError:
        return None
    except OSError as error:
        raise refused(path, error) from None
    if _lock(descriptor) is False and resumes:
        os.close(descriptor)
        raise UserError(
            f"The comparison of {time_stamp} in {directory} is still running.",
            "Wait for it to end, or end it, then resume it.",
        )
    return descriptor


def _is_taken(directory: Path, time_stamp: str, parts: Collection[str]) -> bool:
    """Whether results of a command that has ended carry the stamp."""
    own = _path(directory, time_stamp).name
    for part in {"", *parts}:
        with suppress(FileNotFoundError, NotADirectoryError):
            if any(time_stamp in path.name and path.name != own for path in (directory / part).iterdir()):
                return True
    return False


def _remove_stale(directory: Path, time_stamp: str) -> None:
    """Remove the claims that killed processes left, of seconds that nobody asks for any more."""
    with suppress(OSError):
        for path in directory.iterdir():
            found = _CLAIM.fullmatch(path.name)
            if found is None or found[1] >= time_stamp:
                continue
            with suppress(OSError):
                descriptor = os.open(path, os.O_WRONLY | _SAFELY)
                try:
                    if _lock(descriptor):
                        path.unlink(missing_ok=True)
                finally:
                    os.close(descriptor)


def _lock(descriptor: int) -> bool | None:
    """Lock a claim until it is closed or its process ends.

    Returns:
        False where another process has it, None where this system or file system cannot tell.
    """
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
