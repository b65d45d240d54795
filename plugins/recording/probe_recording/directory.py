"""The directory of a run: one process writes a rank of it, and what it holds is always readable."""

from __future__ import annotations

import os
import re
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO

from probe_core.errors import UserError
from probe_core.files.atomic import make_directory, open_file, refuse_link, refused, write_text
from probe_core.safe_text import safe
from probe_core.store.files import (
    CONSTRUCT_FILE,
    ERROR_FILE,
    FILES,
    JOURNAL_FILE,
    OURS,
    PACKED_FILE,
    STACK_FILE,
    TENSOR_DIRECTORY,
)

DUMP_FILE, DEBUG_FILE = FILES
TENSOR_SUFFIXES = (".pt", ".npy")
_STEP = re.compile(r"step(\d{1,9})")
_LABEL = re.compile(r"rank\d*")


class Lock:
    """Keeps other processes from writing the same rank of the same run; ends with the process."""

    def __init__(self, root: Path, label: str) -> None:
        try:
            make_directory(root)
        except UserError as error:
            raise UserError(error.what, "Give another dump_path.") from None
        self._path = root / f".{label}.lock"
        self._pid = os.getpid()
        self._file: IO[str] | None = None
        while self._file is None:
            try:
                descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise refused(self._path, error) from error
            file = os.fdopen(descriptor, "r+", encoding="utf-8")
            try:
                _lock(file)
            except OSError:
                number = file.read(20).strip()
                file.close()
                holder = f"process {number}" if number else "another process"
                raise UserError(
                    f'"{root}" is being written by {holder}, which records {label} there.',
                    "Give this run a dump_path of its own, or wait for the other to end.",
                ) from None
            if self._is_there(file):
                self._file = file
            else:  # its holder removed it in the meantime
                file.close()
        try:
            self._file.seek(0)
            self._file.truncate(0)
            self._file.write(str(self._pid))
            self._file.flush()
        except OSError as error:
            self.release()
            raise refused(self._path, error) from error

    def _is_there(self, file: IO[str]) -> bool:
        """Is ``file`` still what others would open?"""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.lstat())
        except FileNotFoundError:
            return False

    def let_go(self) -> None:
        """In a forked child: close what was inherited, so that the parent alone holds the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def release(self) -> None:
        """Let others in. In a forked child this does nothing: the lock is the parent's."""
        if self._file is None or os.getpid() != self._pid:
            return
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            self._file.close()
        self._file = None


def _lock(file: IO[str]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: the file cannot be locked whole, its first byte can
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def check_place(root: Path) -> None:
    """Check, without making anything, that a run could be written to ``root``.

    Raises:
        UserError: It could not, as far as can be told.
    """
    place = root
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        usable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise refused(root, error) from error
    if not usable:
        raise UserError(f'"{root}" cannot be written: "{place}" takes no files.', "Give another dump_path.")


class StepDirectory:
    """``{root}/step{n}/{label}``: what a rank recorded of a step; made when the first of it is written.

    Attributes:
        path: The directory.
        has_begun: True once it is being made.
    """

    def __init__(self, root: Path, step: int, label: str) -> None:
        self.path = root / f"step{step}" / label
        self.has_begun = False
        self._is_ready = False
        self._refuse_links()
        if self.path.is_dir():
            clear(self.path)

    def _refuse_links(self) -> None:
        """Raise a UserError where a directory that the recorder makes is a link."""
        for directory in (self.path.parent, self.path, self.path / TENSOR_DIRECTORY):
            refuse_link(directory)

    def _make(self) -> None:
        if not self._is_ready:
            self._refuse_links()
            self.has_begun = True
            make_directory(self.path)
            self._is_ready = True

    @property
    def tensors(self) -> Path:
        """Where the data of tensors go."""
        self._make()
        return self.path / TENSOR_DIRECTORY

    @property
    def kernels(self) -> Path:
        """Where a device's own dump of kernels goes."""
        self._make()
        return self.path / "kernels"

    def blank(self, name: str, start: int, length: int) -> None:
        """Overwrite a part of the file ``name`` by spaces, in place: a full disk has room for that."""
        with (self.path / name).open("r+b", buffering=0) as file:
            file.seek(start)
            file.write(b" " * length)

    def write(self, name: str, text: str) -> None:
        """Replace the file ``name`` as a whole."""
        self._make()
        write_text(self.path / name, text)

    def log(self, stage: str, name: str, error: BaseException, stack: Iterable[str]) -> Exception | None:
        """Append an error of the recorder's to the log of this step; the error where that fails."""
        when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        lines = [
            f"[{when}] [ERROR] {stage} failed: name={name}, pid={os.getpid()}",
            "".join(traceback.format_exception(error)).rstrip(),
            "Call stack (most recent call last):",
            *stack,
            "",
        ]
        try:
            self._make()
            descriptor = open_file(self.path / ERROR_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write("\n".join(safe(line, keep="\n") for line in lines) + "\n")
        except (OSError, UserError) as problem:
            return problem
        return None


def clear(directory: Path) -> int:
    """Remove what a recorder wrote of a step and rank, and nothing else, through no link; how many files."""
    names = (DUMP_FILE, DEBUG_FILE, STACK_FILE, CONSTRUCT_FILE, ERROR_FILE)
    count = sum(_remove(path) for path in (*(directory / name for name in names), *directory.glob(".*.part")))
    tensors = directory / TENSOR_DIRECTORY
    if not tensors.is_symlink():
        count += remove_tensors(tensors)
        with suppress(OSError):
            tensors.rmdir()
    return count


def remove_tensors(directory: Path) -> int:
    """Remove the tensor files of an earlier run; how many."""
    count = 0
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            known = path.suffix in TENSOR_SUFFIXES or path.name in (PACKED_FILE, JOURNAL_FILE)
            if known or path.name.endswith(".part"):
                count += _remove(path)
    return count


def _remove(path: Path) -> bool:
    """Remove a file or a link, if it is there; a directory of that name is not the recorder's."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError:
        if path.is_symlink() or not path.is_dir():
            raise
        return False
    return True


# -- the run that was there before -----------------------------------------------------------------


@dataclass(slots=True)
class Removed:
    """Steps of an earlier run that are gone, by rank, and directories in which something stays."""

    steps: dict[str, list[int]] = field(default_factory=dict)
    staying: list[Path] = field(default_factory=list)

    def sentences(self, root: Path) -> list[str]:
        """Say what was deleted and what was not."""
        lines = []
        if self.steps:
            gone = "; ".join(f"{_numbers(steps)} of {label}" for label, steps in self.steps.items())
            lines.append(f"probe: replaced the recording in {root}: {gone} deleted.")
        if self.staying:
            names = ", ".join(str(path.relative_to(root)) for path in self.staying[:3])
            more = f" and {len(self.staying) - 3} more" if len(self.staying) > 3 else ""
            lines.append(
                f"probe: {names}{more} in {root} hold files that could not be deleted or that "
                "no recorder writes; they stay beside the new recording."
            )
        return lines


def labels_in(root: Path) -> list[str]:
    """The ranks that a run directory holds steps of, by the names of their directories."""
    found: dict[str, None] = {}
    for _, directory in _steps(root):
        with suppress(OSError):
            found |= dict.fromkeys(path.name for path in directory.iterdir() if _LABEL.fullmatch(path.name))
    return sorted(found)


def is_recorded(root: Path, label: str) -> bool:
    """Return True if whatever ``root`` holds of a rank was recorded by probe, as its record files say."""
    for _, directory in _steps(root):
        for path in (directory / label / DUMP_FILE, directory / label / DEBUG_FILE):
            try:
                with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
                    if f'"{OURS}": '.encode() not in file.read(4096):
                        return False
            except FileNotFoundError:
                continue
            except (OSError, UserError):
                return False
    return True


def remove_run(root: Path, label: str, first: int, removed: Removed) -> None:
    """Remove the steps from ``first`` on that an earlier run recorded of a rank; ``removed`` notes them.

    Only files that a recorder writes are deleted, and nothing behind a link.
    """
    for step, directory in _steps(root):
        place = directory / label
        if step < first or place.is_symlink() or not place.is_dir():
            if step >= first:
                with suppress(OSError):  # whoever made it was killed before it made that of its rank
                    directory.rmdir()
            continue
        try:
            if clear(place):
                removed.steps.setdefault(label, []).append(step)
            place.rmdir()
        except OSError:
            removed.staying.append(place)
        with suppress(OSError):  # other ranks have theirs
            directory.rmdir()


def _steps(root: Path) -> list[tuple[int, Path]]:
    """The step directories of a run, by their numbers; links are none."""
    with suppress(OSError), os.scandir(root) as entries:
        found = [(_STEP.fullmatch(entry.name), entry) for entry in entries]
        return sorted(
            (int(name[1]), Path(entry.path))
            for name, entry in found
            if name and entry.is_dir(follow_symlinks=False)
        )
    return []


def _numbers(steps: list[int]) -> str:
    """Steps as a person writes them: ``steps 0-3, 7``."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    return f"step{'s' if len(steps) > 1 else ''} {text}"
