"""Files appear under their name only once they are whole."""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import shutil
import stat
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from probe_core.errors import UserError

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750
TRIES = 10
LONGEST_STEM = 50
"""Characters of a file's name that its temporary name repeats; a file has room for 255 bytes."""
OLD = 24 * 3600.0
"""Seconds after which a temporary file of another machine counts as left over; whether its process lives
cannot be asked from here."""
_PART = re.compile(r"\..*\.([0-9a-f]{6})\.(\d+)\.[0-9a-f]{8}\.part", re.DOTALL)
_DIRECTORY = re.compile(r"probe-([0-9a-f]{6})-(\d+)-.+", re.DOTALL)


def make_directory(path: Path) -> None:
    """Create the output directory ``path`` with its parents, and check that it takes files."""
    try:
        for left in reversed(range(TRIES)):
            try:
                for parent in reversed([path, *path.parents]):
                    if not parent.is_dir():
                        parent.mkdir(exist_ok=True, mode=DIRECTORY_MODE)
                break
            except FileNotFoundError:  # another rank may have removed an empty parent just now
                if not left:
                    raise
    except FileExistsError:
        raise UserError(f"{path} is a file.", "Give a directory.") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise refused(path, error) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(
            f"The output directory {path} is not writable.",
            "Give another directory, or change its permissions.",
        )


def open_file(path: Path, flags: int) -> int:
    """Open a regular file without following links, for its descriptor; a new one is private at once.

    Raises:
        UserError: There is a link at ``path``, a second name of another file, or something that is no file.
        OSError: It cannot be opened.
    """
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    mend = "Remove it, or give another directory."
    if not flags & os.O_EXCL and path.is_symlink():
        raise UserError(f'"{path}" is a link, and probe writes through none.', mend)
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it became one just now
            raise UserError(f'"{path}" is a link, and probe writes through none.', mend) from None
        raise
    found = None if flags & os.O_EXCL else os.fstat(descriptor)  # a new file is what it should be
    if found is not None and (not stat.S_ISREG(found.st_mode) or found.st_nlink > 1):
        os.close(descriptor)
        what = (
            "is no regular file"
            if not stat.S_ISREG(found.st_mode)
            else "is another file as well (a hard link)"
        )
        raise UserError(f'"{path}" {what}, and probe does not write to it.', mend)
    if hasattr(os, "fchmod") and flags & (os.O_WRONLY | os.O_RDWR):
        with suppress(OSError):  # that of another user, or a file system without modes
            os.fchmod(descriptor, FILE_MODE)
    return descriptor


def create(path: Path) -> int:
    """Open a new file, which is private from its first byte; FileExistsError where there is anything."""
    return open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def refuse_link(path: Path) -> None:
    """Raise a UserError where ``path``, which probe makes itself, is a link to something else."""
    if path.is_symlink():
        raise UserError(
            f'"{path}" is a link, and probe writes through none.', "Remove it, or give another directory."
        )


class AtomicFile:
    """A path that is written under a temporary name and takes its own name when complete.

    The temporary file exists from the start, empty and private, and its name cannot be guessed: whoever opens
    it by name, such as a library, opens no link of somebody else's.

    Raises:
        UserError: Its directory takes no file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary, descriptor = _begin(path)
        os.close(descriptor)

    def commit(self, path: Path | None = None) -> Path:
        """Give the finished file its name; ``path`` overrides it."""
        final = path or self.path
        try:
            self.temporary.replace(final)
        except OSError as error:
            self.discard()
            raise refused(final, error) from None
        return final

    def discard(self) -> None:
        """Remove what was written so far, where the disk still lets us."""
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write to, which replaces ``path`` when the block ends without an error."""
    temporary, descriptor = _begin(path)
    try:
        with os.fdopen(descriptor, "wb") as written:
            yield written
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _begin(path: Path) -> tuple[Path, int]:
    """Create the temporary file of ``path``; its path and its descriptor."""
    token = f"{_place()}.{os.getpid()}.{secrets.token_hex(4)}"
    temporary = path.with_name(f".{path.name[-LONGEST_STEM:]}.{token}.part")
    try:
        return temporary, create(temporary)
    except OSError as error:
        raise refused(path, error) from None


# -- what killed processes left --------------------------------------------------------------------


def remove_leftovers(directory: Path, part: str = "") -> None:
    """Remove temporary files of ours whose names hold ``part`` and whose process, which was killed, is gone.

    Of a process on another machine only an old file is removed.
    """
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            found = _PART.fullmatch(entry.name)
            if found is None or part not in entry.name:
                continue
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                is_here = found[1] == _place() and os.name != "nt"  # where asking for a process might end it
                is_left = not _is_alive(int(found[2])) if is_here else time.time() - state.st_mtime > OLD
                if is_left and stat.S_ISREG(state.st_mode) and _is_own(state):
                    Path(entry.path).unlink()


def private_directory() -> Path:
    """Make a directory for temporary files, which only this user reads; those that others left go first."""
    remove_private_directories()
    return Path(tempfile.mkdtemp(prefix=f"probe-{_place()}-{os.getpid()}-"))


def remove_private_directories() -> None:
    """Remove the directories for temporary files of killed processes of this user on this machine."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            found = _DIRECTORY.fullmatch(entry.name)
            if found is None or found[1] != _place() or _is_alive(int(found[2])):
                continue
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _is_own(entry.stat(follow_symlinks=False)):
                    shutil.rmtree(entry.path, ignore_errors=True)


@cache
def _place() -> str:
    """Return what tells this machine, and the container in which process numbers count, from others."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the target is no path
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{platform.node()}|{space}'.encode()) & 0xFFFFFF:06x}"


def _is_own(state: os.stat_result) -> bool:
    return not hasattr(os, "geteuid") or state.st_uid == os.geteuid()


def _is_alive(process: int) -> bool:
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    try:  # one that ended and is not yet missed by its parent is gone as well, where the system tells
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by a file that holds ``text``; a reader sees the old one or the new one."""
    file = AtomicFile(path)
    try:
        file.temporary.write_text(text, "utf-8")
    except OSError as error:
        file.discard()
        raise refused(path, error) from None
    except BaseException:
        file.discard()
        raise
    file.commit()


def not_written(what: str, directory: Path | str, error: OSError) -> UserError:
    """Return the error of a result that ``directory``, which took files before, takes no longer.

    Args:
        what: Begins the sentence, such as ``The result``.
        directory: The place as the message shows it.
        error: The refusal of the system.
    """
    return UserError(
        f"{what} cannot be written to {directory}: {error.strerror or error}.",
        "Free some space there, or give another directory with -o.",
    )


def refused(path: Path, error: Exception) -> UserError:
    """What is said where ``path`` takes no data."""
    return UserError(
        f'"{path}" cannot be written: {getattr(error, "strerror", None) or "no such path"}.',
        "Give another directory, or free some space there.",
    )
