"""Access to the members of a pack: a zip file from a stranger, or a directory, with limits on sizes.

Members are read by their documented names alone, and never extracted by the names in the file.
"""

from __future__ import annotations

import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path

from probe_core.errors import UserError
from probe_core.files.user_files import check_regular

MAX_MEMBERS = 200_000
"""Largest number of members of a zip file, or of entries of a directory."""
MAX_MEMBER_BYTES = 32 << 20
"""Largest size of a member."""
MAX_TOTAL_BYTES = 1 << 30
"""Largest size of all members that are read."""
MAX_DIRECTORY_DEPTH = 4
"""Largest number of directories above a member."""


class PackSource(ABC):
    """The members of a pack.

    Args:
        path: The path of the pack.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._total = 0

    @abstractmethod
    def list_names(self) -> Iterable[str]:
        """Return the names of all members, with slashes."""

    @abstractmethod
    def _read(self, name: str) -> bytes:
        """Return at most one byte more than ``MAX_MEMBER_BYTES`` of a member."""

    def read(self, name: str) -> bytes:
        """Return the content of a member.

        Raises:
            UserError: It cannot be read, or exceeds a limit.
        """
        try:
            data = self._read(name)
        except (OSError, ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise UserError(f"{name} in {self.path} cannot be read: {reason}.", "Collect the pack again.") from None
        self._total += len(data)
        if len(data) > MAX_MEMBER_BYTES:
            raise UserError(
                f"{name} in {self.path} is larger than {MAX_MEMBER_BYTES >> 20} MiB.",
                "Check where the pack comes from, and collect it again.",
            )
        if self._total > MAX_TOTAL_BYTES:
            raise UserError(
                f"The pack {self.path} holds more than {MAX_TOTAL_BYTES >> 30} GiB.",
                "Collect fewer steps.",
            )
        return data

    @abstractmethod
    def close(self) -> None:
        """Release the pack."""


class ZipSource(PackSource):
    """The members of a zip file.

    Raises:
        UserError: It cannot be opened, or has too many members.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            check_regular(path)
            self._file = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise UserError(f"{path} not found.", "Check the path.") from None
        except (OSError, ValueError, EOFError, RuntimeError, OverflowError, zipfile.BadZipFile) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise UserError(f"{path} is not a readable zip file: {reason}.", "Collect the pack again.") from None
        self._members = {member.filename: member for member in self._file.infolist() if not member.is_dir()}
        if len(self._members) > MAX_MEMBERS:
            self.close()
            raise UserError(f"{path} has more than {MAX_MEMBERS:,} members.", "Give a pack of config-check.")

    def list_names(self) -> Iterable[str]:
        """Return the names of all members."""
        return self._members

    def _read(self, name: str) -> bytes:
        with self._file.open(self._members[name]) as member:
            return member.read(MAX_MEMBER_BYTES + 1)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class DirectorySource(PackSource):
    """The files of a directory: an unpacked pack, or a recorded run.

    Raises:
        UserError: It cannot be listed.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._names = {name for name in self._walk(path, "")}
        except OSError as error:
            raise UserError(f"{path} cannot be listed: {error.strerror}.", "Check its permissions.") from None

    def list_names(self) -> Iterable[str]:
        """Return the names of all files."""
        return self._names

    def close(self) -> None:
        """Do nothing; the files are opened one by one."""

    def _walk(self, directory: Path, prefix: str) -> Iterator[str]:
        entries = sorted(directory.iterdir())
        if len(entries) > MAX_MEMBERS:
            raise UserError(f"{directory} has more than {MAX_MEMBERS:,} entries.", "Give a pack of config-check.")
        for entry in entries:
            name = prefix + entry.name
            if not entry.is_dir():
                yield name
            elif name.count("/") < MAX_DIRECTORY_DEPTH and _may_hold_members(name):
                yield from self._walk(entry, f"{name}/")

    def _read(self, name: str) -> bytes:
        path = self.path / name
        check_regular(path)
        with path.open("rb") as file:
            return file.read(MAX_MEMBER_BYTES + 1)


def _may_hold_members(name: str) -> bool:
    """Return True if members may be in a directory; others, such as those of tensors, are not listed."""
    return name.rpartition("/")[2].startswith(("step", "rank", "hyperparameters", "dataset", "weights", "random"))


def open_source(path: Path) -> PackSource:
    """Return the members of a zip file or a directory.

    Raises:
        UserError: It cannot be opened.
    """
    return DirectorySource(path) if path.is_dir() else ZipSource(path)
