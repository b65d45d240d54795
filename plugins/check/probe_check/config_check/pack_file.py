"""Writing of packs: zip files to which processes of several ranks add members."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, open_file, refused, writing

SUFFIX = ".zip"
DATE_TIME = (1980, 1, 1, 0, 0, 0)


def check_name(path: Path) -> None:
    """Raise a UserError if the name of a pack does not end in .zip."""
    if path.suffix != SUFFIX:
        raise UserError(
            f"A pack must end in {SUFFIX}, and {path} does not.", f"Give a name such as pack{SUFFIX}."
        )


def write_pack(path: Path, members: Mapping[str, str]) -> None:
    """Write a new pack, in place of an earlier one.

    Raises:
        UserError: It cannot be written.
    """
    check_name(path)
    make_directory(path.parent)
    with (
        writing(path, "The pack") as temporary,
        zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for name, text in members.items():
            file.writestr(_info(name), text)


def add_members(path: Path, members: Mapping[str, str]) -> None:
    """Add members to a pack, which is created if it does not exist; other ranks wait.

    The new members and a new list of all members are written behind the earlier content. If that fails, the
    file is cut off there, and the earlier content is valid again.

    Raises:
        UserError: The file cannot be written, or is not a zip file.
    """
    try:
        _add(path, members)
    except (OSError, zipfile.BadZipFile) as error:
        raise refused(path, error) from None


def _add(path: Path, members: Mapping[str, str]) -> None:
    import fcntl

    with os.fdopen(open_file(path, os.O_RDWR | os.O_CREAT), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # released when the file is closed
        size = file.seek(0, os.SEEK_END)
        try:
            with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive:
                archive.start_dir = size
                for name, text in members.items():
                    archive.writestr(_info(name), text)
            file.flush()
        except BaseException:
            file.truncate(size)
            raise


def _info(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, DATE_TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o640 << 16
    return info
