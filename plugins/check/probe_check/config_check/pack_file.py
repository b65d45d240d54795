"""Writing of packs: zip files to which processes of several ranks add members."""

from __future__ import annotations

import os
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import create_path_error, make_directory, open_file, write_atomically

PACK_SUFFIX = ".zip"
MEMBER_DATE_TIME = (1980, 1, 1, 0, 0, 0)


def check_name(path: Path) -> None:
    """Raise a UserError if the name of a pack does not end in .zip."""
    if path.suffix != PACK_SUFFIX:
        raise UserError(
            f"A pack must end in {PACK_SUFFIX}, and {path} does not.", f"Give a name such as pack{PACK_SUFFIX}."
        )


def write_pack(path: Path, members: Mapping[str, str]) -> None:
    """Write a new pack, in place of an earlier one.

    Raises:
        UserError: It cannot be written.
    """
    check_name(path)
    make_directory(path.parent)
    with (
        write_atomically(path, "The pack") as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for name, text in members.items():
            file.writestr(_create_member_info(name), text)


class PackFile:
    """A pack to which the processes of a training add members, one after another.

    New members and a new list of all members are written behind the earlier content. If that fails, the file
    is cut off there, and the earlier content is valid again. A pack of an earlier program is emptied first.

    Args:
        path: Its path.

    Raises:
        UserError: The name does not end in .zip, or the directory cannot be written to.
    """

    def __init__(self, path: Path) -> None:
        check_name(path)
        make_directory(path.parent)
        self._path = path
        self._has_begun = False

    def add(self, members: Mapping[str, str]) -> None:
        """Add members; processes of other ranks wait.

        Raises:
            UserError: They cannot be written.
        """
        try:
            self._add(members)
        except (OSError, zipfile.BadZipFile) as error:
            raise create_path_error(self._path, error) from None
        self._has_begun = True

    def _add(self, members: Mapping[str, str]) -> None:
        import fcntl

        with os.fdopen(open_file(self._path, os.O_RDWR | os.O_CREAT), "r+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
            if not self._has_begun and self._is_of_earlier_program(file.fileno()):
                file.truncate(0)
            size = file.seek(0, os.SEEK_END)
            try:
                with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
                    archive.start_dir = size
                    for name, text in members.items():
                        archive.writestr(_create_member_info(name), text)
                file.flush()
            except BaseException:
                file.truncate(size)
                raise
        _BEGUN_PACKS.add(self._path.resolve())

    def _is_of_earlier_program(self, descriptor: int) -> bool:
        """Return True if the content is not of the other processes of this program, which began with it."""
        is_own = self._path.resolve() in _BEGUN_PACKS
        return is_own or os.fstat(descriptor).st_mtime < _START_TIME


_START_TIME = time.time()
"""The time at which this process began to use the module."""
_BEGUN_PACKS: set[Path] = set()
"""Packs that this process has written to; a second checker of the process replaces the first one's pack."""


def _create_member_info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, MEMBER_DATE_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o640 << 16
    return info
