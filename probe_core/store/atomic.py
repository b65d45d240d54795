"""Files appear under their name only once they are whole."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from probe_core.errors import UserError

FILE_MODE = 0o640
DIRECTORY_MODE = 0o750


def make_directory(path: Path) -> None:
    """Create the output directory ``path`` with its parents, and check that it takes files."""
    try:
        for parent in reversed([path, *path.parents]):
            if not parent.is_dir():
                parent.mkdir(exist_ok=True, mode=DIRECTORY_MODE)
    except FileExistsError:
        raise UserError(f"{path} is a file.", "Give a directory.") from None
    except (OSError, ValueError) as error:  # ValueError: a path that no file can have
        raise refused(path, error) from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise UserError(
            f"The output directory {path} is not writable.",
            "Give another directory, or change its permissions.",
        )


class AtomicFile:
    """A path that is written under a temporary name and takes its own name when complete."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.temporary = path.with_name(f".{path.name}.{os.getpid()}.part")

    def commit(self, path: Path | None = None) -> Path:
        """Give the finished file its name; ``path`` overrides it."""
        final = path or self.path
        try:
            self.temporary.chmod(FILE_MODE)
            self.temporary.replace(final)
        except OSError as error:
            self.discard()
            raise refused(final, error) from None
        return final

    def discard(self) -> None:
        """Remove what was written so far, where the disk still lets us."""
        with suppress(OSError):
            self.temporary.unlink(missing_ok=True)


def remove_leftovers(directory: Path, part: str) -> None:
    """Remove temporary files whose names hold ``part`` and whose process, which was killed, is gone."""
    for path in directory.glob(f".*{part}*.part"):
        process = path.name.split(".")[-2]
        if process.isdecimal() and not _is_alive(int(process)):
            path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where asking might end it
        return False
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
    file.commit()


def refused(path: Path, error: Exception) -> UserError:
    """What is said where ``path`` takes no data."""
    return UserError(
        f'"{path}" cannot be written: {getattr(error, "strerror", None) or "no such path"}.',
        "Give another directory, or free some space there.",
    )
