"""Atomic writing: files appear under their names only when they are complete."""

from __future__ import annotations

import errno
import os
import platform
import re
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
MAX_DIRECTORY_TRIES = 10
MAX_STEM_LENGTH = 50
"""Characters of a file's name that its temporary name repeats; names are limited to 255 bytes."""
MAX_LEFTOVER_AGE_SECONDS = 24 * 3600.0
"""Seconds after which a temporary file of another machine, whose processes cannot be checked, is removed."""
_TEMPORARY_NAME = re.compile(r"\..*\.([0-9a-f]{6})\.(\d+)\.[0-9a-f]{8}\.part", re.DOTALL)
_PRIVATE_DIRECTORY_NAME = re.compile(r"probe-([0-9a-f]{6})-(\d+)-.+", re.DOTALL)


def make_directory(path: Path) -> None:
    """Create the output directory ``path`` with its parents, and check that it is writable."""
    try:
        for tries_left in reversed(range(MAX_DIRECTORY_TRIES)):
            try:
                for parent in reversed([path, *path.parents]):
                    if not parent.is_dir():
                        parent.mkdir(exist_ok=True, mode=DIRECTORY_MODE)
                break
            except FileNotFoundError:  # another rank may have removed an empty parent just now
                if not tries_left:
                    raise
    except FileExistsError:
        raise UserError(f"{path} is a file, not a directory.", "Give a directory.") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise create_path_error(path, error) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(
            f"The output directory {path} is not writable.", "Give another directory, or change its permissions."
        )


def open_file(path: Path, flags: int) -> int:
    """Open a regular file without following links, and return its descriptor; a new file is private.

    Raises:
        UserError: ``path`` is a symbolic link, a hard link to another file, or not a regular file.
        OSError: It cannot be opened.
    """
    flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    fix = "Remove it, or give another directory."
    if not flags & os.O_EXCL:
        refuse_link(path)
    try:
        descriptor = os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno == errno.ELOOP:  # replaced by a link since the check
            raise _create_link_error(path) from None
        raise
    state = None if flags & os.O_EXCL else os.fstat(descriptor)  # a new file needs no check
    if state is not None and (not stat.S_ISREG(state.st_mode) or state.st_nlink > 1):
        os.close(descriptor)
        is_file = stat.S_ISREG(state.st_mode)
        problem = "is a hard link to another file" if is_file else "is not a regular file"
        raise UserError(f'"{path}" {problem}, and probe does not write to it.', fix)
    if hasattr(os, "fchmod") and flags & (os.O_WRONLY | os.O_RDWR):
        with suppress(OSError):  # another user's file, or a file system without modes
            os.fchmod(descriptor, FILE_MODE)
    return descriptor


def create_file(path: Path) -> int:
    """Create a private file and return its descriptor; raise FileExistsError if ``path`` exists."""
    return open_file(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)


def refuse_link(path: Path) -> None:
    """Raise a UserError if ``path``, which probe makes itself, is a symbolic link."""
    if path.is_symlink():
        raise _create_link_error(path)


def _create_link_error(path: Path) -> UserError:
    return UserError(f'"{path}" is a link, which probe does not follow.', "Remove it, or give another directory.")


class AtomicFile:
    """A file that is written under a temporary name and renamed when it is complete.

    The temporary file exists from the start, empty and private. Its name cannot be guessed, so that a library
    that opens it by name cannot be led to a link of another user.

    Raises:
        UserError: The directory is not writable.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary, descriptor = _create_temporary(path)
        os.close(descriptor)

    def commit(self, path: Path | None = None) -> Path:
        """Rename the finished file to its name, or to ``path`` if given, and return it."""
        final = path or self.path
        try:
            self.temporary.replace(final)
        except OSError as error:
            self.discard()
            raise create_path_error(final, error) from None
        return final

    def discard(self) -> None:
        """Remove the temporary file, if possible."""
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


@contextmanager
def write_atomically(path: Path, subject: str) -> Iterator[Path]:
    """Yield the temporary path of a file, which appears as ``path`` if the block ends without an error.

    Raises:
        UserError: It cannot be written, and ``subject`` begins the message.
    """
    file = AtomicFile(path)
    try:
        yield file.temporary
    except OSError as error:
        file.discard()
        raise create_write_error(subject, path.parent, error) from None
    except BaseException:
        file.discard()
        raise
    file.commit()


@contextmanager
def replace_file(path: Path) -> Iterator[BinaryIO]:
    """Yield a file to write to, which replaces ``path`` if the block ends without an error."""
    temporary, descriptor = _create_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _create_temporary(path: Path) -> tuple[Path, int]:
    """Create the temporary file of ``path``; return its path and descriptor."""
    token = f"{_hash_machine()}.{os.getpid()}.{os.urandom(4).hex()}"
    temporary = path.with_name(f".{path.name[-MAX_STEM_LENGTH:]}.{token}.part")
    try:
        return temporary, create_file(temporary)
    except OSError as error:
        raise create_path_error(path, error) from None


# -- leftovers of killed processes -----------------------------------------------------------------


def remove_leftovers(directory: Path, part: str = "") -> None:
    """Remove probe's temporary files with ``part`` in their names whose processes are gone.

    A file of a process on another machine is removed only if it is old.
    """
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            match = _TEMPORARY_NAME.fullmatch(entry.name)
            if match is None or part not in entry.name:
                continue
            with suppress(OSError):
                state = entry.stat(follow_symlinks=False)
                is_here = match[1] == _hash_machine() and os.name != "nt"  # on Windows, checking a process might end it
                is_left = (
                    not _is_alive(int(match[2])) if is_here else time.time() - state.st_mtime > MAX_LEFTOVER_AGE_SECONDS
                )
                if is_left and stat.S_ISREG(state.st_mode) and _is_owned_by_user(state):
                    Path(entry.path).unlink()


def create_private_directory() -> Path:
    """Create a directory for temporary files, readable by this user only; remove leftover ones."""
    remove_private_directories()
    return Path(tempfile.mkdtemp(prefix=f"probe-{_hash_machine()}-{os.getpid()}-"))


def remove_private_directories() -> None:
    """Remove the temporary directories of this user's killed processes on this machine."""
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            match = _PRIVATE_DIRECTORY_NAME.fullmatch(entry.name)
            if match is None or match[1] != _hash_machine() or _is_alive(int(match[2])):
                continue
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False) and _is_owned_by_user(entry.stat(follow_symlinks=False)):
                    shutil.rmtree(entry.path, ignore_errors=True)


@cache
def _hash_machine() -> str:
    """Return a hash of this machine and of the container in which process numbers are valid."""
    try:
        space = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the target is no path
    except OSError:
        space = ""
    return f"{zlib.crc32(f'{platform.node()}|{space}'.encode()) & 0xFFFFFF:06x}"


def _is_owned_by_user(state: os.stat_result) -> bool:
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
    try:  # a zombie counts as gone
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return True


def write_text(path: Path, text: str) -> None:
    """Replace ``path`` by a file that holds ``text``; readers see the old file or the new one."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file at once, or leave it as it is.

    Raises:
        UserError: The file cannot be written.
    """
    try:
        with replace_file(path) as file:
            file.write(data)
    except OSError as error:
        raise create_path_error(path, error) from None


def create_write_error(subject: str, directory: Path | str, error: OSError) -> UserError:
    """Return the error of a result that cannot be written to ``directory`` although it was writable before.

    Args:
        subject: The subject of the message, such as ``The result``.
        directory: The directory as the message shows it.
        error: The error of the operating system.
    """
    return UserError(
        f"{subject} cannot be written to {directory}: {error.strerror or error}.",
        "Free some space there, or give another directory with -o.",
    )


def create_path_error(path: Path, error: Exception) -> UserError:
    """Return the error for a ``path`` that cannot be written."""
    return UserError(
        f'"{path}" cannot be written: {getattr(error, "strerror", None) or "no such path"}.',
        "Give another directory, or free some space there.",
    )
