"""The directory of a run: one process writes a rank of it, and what it holds is always readable."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO

from probe_core.errors import UserError
from probe_core.safe_text import safe
from probe_core.store.atomic import FILE_MODE, make_directory, write_text
from probe_core.store.layout import CONSTRUCT_FILE, STACK_FILE, TENSOR_DIRECTORY
from probe_core.store.packed import JOURNAL_FILE, PACKED_FILE

DUMP_FILE, DEBUG_FILE, ERROR_FILE = "dump.json", "debug.json", "dump_error_info.log"
TENSOR_SUFFIXES = (".pt", ".npy")


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
            file = self._path.open("a+", encoding="utf-8")
            with suppress(OSError):
                self._path.chmod(FILE_MODE)
            try:
                _lock(file)
            except OSError:
                file.seek(0)
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
        self._file.truncate(0)
        self._file.write(str(self._pid))
        self._file.flush()

    def _is_there(self, file: IO[str]) -> bool:
        """Is ``file`` still what others would open?"""
        try:
            return os.path.samestat(os.fstat(file.fileno()), self._path.stat())
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


class StepDirectory:
    """``{root}/step{n}/{label}``: what a rank recorded of a step; made when the first of it is written."""

    def __init__(self, root: Path, step: int, label: str) -> None:
        self.path = root / f"step{step}" / label
        self._is_ready = False
        if self.path.is_dir():
            self._clear()

    def _clear(self) -> None:
        """Remove what an earlier run left."""
        for name in (DUMP_FILE, DEBUG_FILE, STACK_FILE, CONSTRUCT_FILE, ERROR_FILE):
            (self.path / name).unlink(missing_ok=True)
        for part in self.path.glob(".*.part"):
            part.unlink(missing_ok=True)
        remove_tensors(self.path / TENSOR_DIRECTORY)
        with suppress(OSError):
            (self.path / TENSOR_DIRECTORY).rmdir()

    def _make(self) -> None:
        if not self._is_ready:
            make_directory(self.path)
            self._is_ready = True

    @property
    def tensors(self) -> Path:
        """Where the data of tensors go."""
        self._make()
        return self.path / TENSOR_DIRECTORY

    def write(self, name: str, text: str) -> None:
        """Replace the file ``name`` as a whole."""
        self._make()
        write_text(self.path / name, text)

    def log(self, stage: str, name: str, error: BaseException, stack: Iterable[str]) -> None:
        """Append an error of the recorder's to the log of this step (spec/dump 9.5)."""
        when = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
        lines = [
            f"[{when}] [ERROR] {stage} failed: name={name}, pid={os.getpid()}",
            "".join(traceback.format_exception(error)).rstrip(),
            "Call stack (most recent call last):",
            *stack,
            "",
        ]
        with suppress(OSError, UserError):
            self._make()
        with suppress(OSError), (self.path / ERROR_FILE).open("a", encoding="utf-8") as file:
            file.write("\n".join(safe(line, keep="\n") for line in lines) + "\n")


def remove_tensors(directory: Path) -> None:
    """Remove the tensor files of an earlier run."""
    with suppress(FileNotFoundError):
        for path in directory.iterdir():
            known = path.suffix in TENSOR_SUFFIXES or path.name in (PACKED_FILE, JOURNAL_FILE)
            if known or path.name.endswith(".part"):
                path.unlink(missing_ok=True)
