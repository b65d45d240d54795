"""The files of the last steps in memory, within a bound."""

from __future__ import annotations

import sys
import traceback
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from probe_core.errors import UserError
from probe_core.safe_text import escape_invisible
from probe_core.store.files import ERROR_FILE
from probe_recording.run_directory.directory import StepDirectory

Rows = NDArray[np.int32]


class MemoryDirectory(StepDirectory):
    """The directory of one step and rank whose files stay in memory.

    Attributes:
        files: The content of each file by its name, in the order of their last writing.
    """

    def __init__(self, root: Path, step: int, label: str) -> None:
        self.path = root / f"step{step}" / label
        self.has_begun = False
        self.files: dict[str, bytes] = {}

    def _make(self) -> None:
        self.has_begun = True

    @property
    def tensors(self) -> Path:
        """Raise a UserError, because tensors are not kept."""
        raise UserError("The last steps are kept as statistics, without tensors.", 'Record with "task": "statistics".')

    def overwrite_with_spaces(self, name: str, start: int, length: int) -> None:
        """Replace a part of a file by spaces."""
        data = self.files[name]
        self.files[name] = data[:start] + b" " * length + data[start + length :]

    def write(self, name: str, text: str) -> None:
        """Replace the whole file ``name``."""
        self._make()
        self.files.pop(name, None)
        self.files[name] = text.encode()

    def log(self, stage: str, name: str, error: BaseException, stack: Iterable[str]) -> Exception | None:
        """Append an error of the recorder to the step's error log."""
        lines = [f"[ERROR] {stage} failed: name={name}", *traceback.format_exception(error), *stack, ""]
        text = "\n".join(escape_invisible(line.rstrip(), keep="\n") for line in lines) + "\n"
        self._make()
        self.files[ERROR_FILE] = self.files.get(ERROR_FILE, b"") + text.encode()
        return None


@dataclass(slots=True, eq=False)
class StoredStep:
    """A step in memory.

    Attributes:
        number: The number of the step.
        label: The name of the rank's directory.
        files: The content of its files.
        column: The column of the history that holds its quantities; -1 for none.
        rows: The rows of its quantities in the history, in execution order.
        is_written: True if its files are on disk.
    """

    number: int
    label: str
    files: dict[str, bytes]
    column: int
    rows: Rows
    is_written: bool = False


class StepRing:
    """The last steps of a training, the oldest of which is dropped first.

    A file that equals that of the step before, such as ``construct.json``, is held once.

    Args:
        keep_last: Number of steps to keep.
        memory: Bytes that they may take.

    Attributes:
        dropped_for_memory: Number of steps that were dropped to stay within the bytes.
    """

    def __init__(self, keep_last: int, memory: int) -> None:
        self._keep_last = keep_last
        self._memory = memory
        self._steps: deque[StoredStep] = deque()
        self.dropped_for_memory = 0

    @property
    def steps(self) -> list[StoredStep]:
        """The kept steps, oldest first."""
        return list(self._steps)

    @property
    def byte_count(self) -> int:
        """Bytes of all kept steps."""
        held = {id(data): sys.getsizeof(data) for step in self._steps for data in step.files.values()}
        return sum(held.values()) + sum(step.rows.nbytes for step in self._steps)

    def add(self, step: StoredStep) -> None:
        """Add a step, and drop the oldest ones that exceed the number of steps or the bytes."""
        if self._steps:
            last = self._steps[-1].files
            step.files = {name: last[name] if last.get(name) == data else data for name, data in step.files.items()}
        self._steps.append(step)
        while len(self._steps) > self._keep_last:
            self._steps.popleft()
        self._shrink()

    def limit(self, memory: int) -> None:
        """Change the bytes that the steps may take."""
        self._memory = memory
        self._shrink()

    def _shrink(self) -> None:
        while self._steps and self.byte_count > self._memory:
            self._steps.popleft()
            self.dropped_for_memory += 1
