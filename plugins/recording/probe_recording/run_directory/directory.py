"""Writing of the run directory: locks, atomic files, and removal of an earlier run in the same place."""

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
from probe_core.files.atomic import create_path_error, make_directory, open_file, refuse_link, write_text
from probe_core.safe_text import escape_invisible
from probe_core.store.files import (
    CONDITIONS_FILE,
    CONSTRUCT_FILE,
    DEFAULT_RECORD_FILES,
    ERROR_FILE,
    STACK_FILE,
    TENSOR_DIRECTORY,
)
from probe_recording.file_names import JOURNAL_FILE, PACKED_FILE, PROBE_FIELD
from probe_recording.step_facts.step_phases import EARLIER_STEP_PHASES_FILE, STEP_PHASES_FILE
from probe_recording.step_facts.tokens import TOKENS_FILE

DUMP_FILE, DEBUG_FILE = DEFAULT_RECORD_FILES
WATCH_FILE = "watch.json"
"""The events for which the last steps were written, next to the last of them (docs/watch.md#files)."""

SINGLE = "rank"
"""The name of the directory of a process that runs alone."""

FREE_BENCHMARK_FILE = "free_benchmark.csv"
"""The table of the task free_benchmark, in the directory of a step and rank."""

TENSOR_SUFFIXES = (".pt", ".npy")
_STEP = re.compile(r"step(\d{1,9})")
_LABEL = re.compile(r"rank\d*|proc\d+")


class Lock:
    """A lock on one rank of a run directory, which is released at the latest when the process ends.

    Args:
        root: The directory of the run; it is created.
        label: The name of the rank's directories, such as ``rank0`` or ``actor/rank0``.
        waits: True to wait until another process has released the lock.

    Raises:
        UserError: The directory cannot be written, or another process records this rank there.
    """

    def __init__(self, root: Path, label: str, *, waits: bool = False) -> None:
        try:
            make_directory(root)
        except UserError as error:
            raise UserError(error.what, "Set another dump_path.") from None
        self._path = root / f".{label.replace('/', '.')}.lock"
        self._pid = os.getpid()
        self._file: IO[str] | None = None
        while self._file is None:
            try:
                descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT)
            except OSError as error:
                raise create_path_error(self._path, error) from error
            file = os.fdopen(descriptor, "r+", encoding="utf-8")
            try:
                _lock(file, waits=waits)
            except OSError:
                number = file.read(20).strip()
                file.close()
                holder = f"process {number}" if number else "another process"
                raise UserError(
                    f'"{root}" is being written by {holder}, which records {label} there.',
                    "Set another dump_path for this run, or wait until the other process has ended.",
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
            raise create_path_error(self._path, error) from error

    def _is_there(self, file: IO[str]) -> bool:
        """Return True if the lock's path still leads to ``file``."""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.lstat())
        except FileNotFoundError:
            return False

    def let_go(self) -> None:
        """Close the inherited file in a forked child, so that only the parent holds the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def release(self) -> None:
        """Release the lock; in a forked child do nothing, because the lock belongs to the parent."""
        if self._file is None or os.getpid() != self._pid:
            return
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            self._file.close()
        self._file = None


def _lock(file: IO[str], *, waits: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: the file cannot be locked whole, its first byte can
        import msvcrt

        file.seek(0)
        mode = msvcrt.LK_LOCK if waits else msvcrt.LK_NBLCK  # type: ignore[attr-defined]
        msvcrt.locking(file.fileno(), mode, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))


def check_place(root: Path) -> None:
    """Check, without creating anything, that a run can be written to ``root``.

    Raises:
        UserError: The nearest existing directory cannot be written.
    """
    place = root
    try:
        while not place.exists() and place != place.parent:
            place = place.parent
        usable = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
    except (OSError, ValueError) as error:
        raise create_path_error(root, error) from error
    if not usable:
        raise UserError(
            f'"{root}" cannot be written: "{place}" is no directory, or its permissions forbid new files.',
            "Change the permissions there, or set another dump_path.",
        )


class StepDirectory:
    """The directory ``{root}/step{n}/{label}`` of one step and rank, created with its first file.

    Args:
        root: The directory of the run.
        step: The number of the step.
        label: The name of the rank's directory, such as ``rank0`` or ``actor/rank0``.

    Attributes:
        path: The directory.
        step_path: The directory of the step.
        has_begun: True once the directory is being created.
    """

    def __init__(self, root: Path, step: int, label: str) -> None:
        self.step_path = root / f"step{step}"
        self.path = self.step_path / label
        self.has_begun = False
        self._is_ready = False
        self._refuse_links()
        if self.path.is_dir():
            clear(self.path)

    def _refuse_links(self) -> None:
        """Raise a UserError if a directory that the recorder would create is a link."""
        for directory in (self.step_path, self.path.parent, self.path, self.path / TENSOR_DIRECTORY):
            refuse_link(directory)

    def _make(self) -> None:
        if not self._is_ready:
            self._refuse_links()
            self.has_begun = True
            make_directory(self.path)
            self._is_ready = True

    @property
    def tensors(self) -> Path:
        """The directory for the data of tensors; reading this property creates the step's directory."""
        self._make()
        return self.path / TENSOR_DIRECTORY

    @property
    def kernels(self) -> Path:
        """The directory for a device's own dump of kernels; reading it creates the step's directory."""
        self._make()
        return self.path / "kernels"

    def overwrite_with_spaces(self, name: str, start: int, length: int) -> None:
        """Overwrite a part of a file by spaces, in place, which works even when the disk is full.

        Args:
            name: The name of the file.
            start: The offset of the part, in bytes.
            length: Its length in bytes.
        """
        with (self.path / name).open("r+b", buffering=0) as file:
            file.seek(start)
            file.write(b" " * length)

    def write(self, name: str, text: str) -> None:
        """Replace the whole file ``name`` atomically."""
        self._make()
        write_text(self.path / name, text)

    def log(self, stage: str, name: str, error: BaseException, stack: Iterable[str]) -> Exception | None:
        """Append an error of the recorder to the step's error log (docs/formats.md#error-log).

        Args:
            stage: The part of the recorder that failed.
            name: The name of the record.
            error: The exception.
            stack: The lines of the call stack.

        Returns:
            The exception that kept the log from being written, or None.
        """
        timestamp = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        lines = [
            f"[{timestamp}] [ERROR] {stage} failed: name={name}, pid={os.getpid()}",
            "".join(traceback.format_exception(error)).rstrip(),
            "Call stack (most recent call last):",
            *stack,
            "",
        ]
        try:
            self._make()
            descriptor = open_file(self.path / ERROR_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            with os.fdopen(descriptor, "a", encoding="utf-8") as file:
                file.write("\n".join(escape_invisible(line, keep="\n") for line in lines) + "\n")
        except (OSError, UserError) as problem:
            return problem
        return None


def clear(directory: Path) -> int:
    """Remove the files that a recorder wrote for a step and rank, and no others; follow no links.

    Returns:
        The number of files removed.
    """
    names = (
        DUMP_FILE, DEBUG_FILE, STACK_FILE, CONSTRUCT_FILE, STEP_PHASES_FILE, EARLIER_STEP_PHASES_FILE,
        CONDITIONS_FILE, TOKENS_FILE, ERROR_FILE, WATCH_FILE, FREE_BENCHMARK_FILE,
    )  # fmt: skip
    count = sum(_remove(path) for path in (*(directory / name for name in names), *directory.glob(".*.part")))
    tensors = directory / TENSOR_DIRECTORY
    if not tensors.is_symlink():
        count += remove_tensors(tensors)
        with suppress(OSError):
            tensors.rmdir()
    return count


def remove_tensors(directory: Path) -> int:
    """Remove the tensor files of an earlier run and return how many there were."""
    count = 0
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            is_tensor_file = path.suffix in TENSOR_SUFFIXES or path.name in (PACKED_FILE, JOURNAL_FILE)
            if is_tensor_file or path.name.endswith(".part"):
                count += _remove(path)
    return count


def _remove(path: Path) -> bool:
    """Remove a file or a link and return True; return False if there is none or it is a directory."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError:
        if path.is_symlink() or not path.is_dir():
            raise
        return False
    return True


# -- removal of an earlier run --------------------------------------------------------------------


@dataclass(slots=True)
class RemovalResult:
    """The result of removing an earlier run.

    Attributes:
        steps: The removed steps of each rank.
        staying: Directories that still hold files.
    """

    steps: dict[str, list[int]] = field(default_factory=dict)
    staying: list[Path] = field(default_factory=list)

    def list_sentences(self, root: Path) -> list[str]:
        """Return the sentences that report what was deleted and what was not."""
        lines = []
        if self.steps:
            removed_steps = "; ".join(f"{_format_steps(steps)} of {label}" for label, steps in self.steps.items())
            lines.append(f"probe: replaced the recording in {root}: {removed_steps} deleted.")
        if self.staying:
            names = ", ".join(str(path.relative_to(root)) for path in self.staying[:3])
            more_text = f" and {len(self.staying) - 3} more" if len(self.staying) > 3 else ""
            lines.append(
                f"probe: {names}{more_text} in {root} hold files that could not be deleted or that "
                "no recorder writes; they are kept beside the new recording."
            )
        return lines


def list_labels(root: Path) -> list[str]:
    """Return the names of the rank directories in a run directory, such as ``rank0`` and ``actor/rank0``, sorted."""
    labels: set[str] = set()
    for _, directory in step_directories(root):
        for parent in (directory, *_list_stages(directory)):
            with suppress(OSError):
                labels |= {
                    path.relative_to(directory).as_posix() for path in parent.iterdir() if _LABEL.fullmatch(path.name)
                }
    return sorted(labels)


def _list_stages(step_directory: Path) -> list[Path]:
    """Return the directories of a step that may be stages; links are left out."""
    with suppress(OSError), os.scandir(step_directory) as entries:
        return [
            Path(entry.path)
            for entry in entries
            if entry.is_dir(follow_symlinks=False) and not _LABEL.fullmatch(entry.name)
        ]
    return []


def is_recorded(root: Path, label: str) -> bool:
    """Return True if all record files of a rank below ``root`` say that probe recorded them."""
    for _, directory in step_directories(root):
        for path in (directory / label / DUMP_FILE, directory / label / DEBUG_FILE):
            try:
                with os.fdopen(open_file(path, os.O_RDONLY), "rb") as file:
                    if f'"{PROBE_FIELD}": '.encode() not in file.read(4096):
                        return False
            except FileNotFoundError:
                continue
            except (OSError, UserError):
                return False
    return True


def remove_run(root: Path, label: str, first: int, removed: RemovalResult) -> None:
    """Remove the steps of a rank that an earlier run recorded.

    Only files that a recorder writes are deleted, and nothing behind a link.

    Args:
        root: The directory of the run.
        label: The name of the rank's directories.
        first: The first step to remove.
        removed: The report, which is added to.
    """
    for step, directory in step_directories(root):
        place = directory / label
        is_link = place.is_symlink() or place.parent.is_symlink()
        if step < first or is_link or not place.is_dir():
            if step >= first:
                with suppress(OSError):  # its process was killed before it created the rank's directory
                    directory.rmdir()
            continue
        try:
            if clear(place):
                removed.steps.setdefault(label, []).append(step)
            place.rmdir()
        except OSError:
            removed.staying.append(place)
        with suppress(OSError):  # not empty: it holds directories of other ranks
            if place.parent != directory:
                place.parent.rmdir()
            directory.rmdir()


def remove_earlier_steps(root: Path, label: str, first: int, process_count: int) -> list[str]:
    """Remove the steps of an earlier run in this directory, and return sentences about them.

    Each rank removes its own steps. The first rank also removes those of ranks that this run does not
    have, if probe recorded them and no other process is writing them.

    Args:
        root: The directory of the run.
        label: The name of this process' directories.
        first: The first step to remove.
        process_count: The number of processes of this run.
    """
    removed = RemovalResult()
    remove_run(root, label, first, removed)
    stage, _, name = label.rpartition("/")
    for other_label in list_labels(root) if process_count and name in (SINGLE, f"{SINGLE}0") else ():
        other_stage, _, other_name = other_label.rpartition("/")
        number = other_name.removeprefix(SINGLE)
        is_in_run = number.isdigit() and name != SINGLE and int(number) < process_count
        if other_label == label or other_stage != stage or is_in_run:
            continue
        try:
            lock = Lock(root, other_label)
        except UserError:
            continue
        if is_recorded(root, other_label):
            remove_run(root, other_label, first, removed)
        lock.release()
    return removed.list_sentences(root)


def step_directories(root: Path) -> list[tuple[int, Path]]:
    """Return the step directories of a run, each with its number; links are left out."""
    with suppress(OSError), os.scandir(root) as entries:
        matches = [(_STEP.fullmatch(entry.name), entry) for entry in entries]
        return sorted(
            (int(name[1]), Path(entry.path)) for name, entry in matches if name and entry.is_dir(follow_symlinks=False)
        )
    return []


def _format_steps(steps: list[int]) -> str:
    """Return steps as a message shows them, such as ``steps 0-3, 7``."""
    ranges: list[list[int]] = []
    for step in steps:
        if ranges and ranges[-1][1] == step - 1:
            ranges[-1][1] = step
        else:
            ranges.append([step, step])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
    return f"step{'s' if len(steps) > 1 else ''} {text}"
