"""The report on a recording that could not be written to its end: the failure, the loss and the remedy."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from probe_core.errors import UserError, format_count
from probe_recording import messages

_FREE_SPACE_FIX = 'Free some space there or set another dump_path; "task": "statistics" takes less space.'
_FIXES = {
    errno.ENOSPC: _FREE_SPACE_FIX,
    errno.EDQUOT: _FREE_SPACE_FIX,
    errno.EFBIG: _FREE_SPACE_FIX,
    errno.EMFILE: "Raise the limit of open files (ulimit -n), or let the script close its own.",
    errno.ENFILE: "Raise the system's limit of open files.",
    errno.ENOENT: "Leave the directory of a run in place while it is written.",
    errno.EACCES: "Change the permissions there, or set another dump_path.",
    errno.EPERM: "Change the permissions there, or set another dump_path.",
}
_DEFAULT_FIX = "Give a dump_path that can be written."


@dataclass(frozen=True, slots=True)
class WriteFailure:
    """A failed write, described by a sentence on what happened and one on what to do."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Loss:
    """The end of a recording of which nothing more can be written.

    Attributes:
        failure: The write that failed.
        step: The step that was being recorded.
        readable_count: Number of its records that can be read.
        count: Number of records it had by then.
    """

    failure: WriteFailure
    step: int
    readable_count: int
    count: int

    @property
    def remains(self) -> str:
        """A sentence on how much of the step can be read."""
        if not self.readable_count:
            return f"Nothing of step {self.step} can be read."
        if self.readable_count >= self.count:
            return f"The {format_count(self.readable_count, 'record')} that step {self.step} had by then can be read."
        records = format_count(self.count, "record")
        return f"Of the {records} that step {self.step} had by then, {self.readable_count:,} can be read."


def describe_failure(error: Exception, path: Path) -> WriteFailure:
    """Return the description of a failed write at or below ``path``."""
    number, name = None, str(path)
    cause: BaseException | None = error
    while cause is not None and number is None:
        if isinstance(cause, OSError):
            number, name = cause.errno, str(cause.filename or name)
        cause = cause.__cause__ or cause.__context__
    fix = _FIXES.get(number or 0, _DEFAULT_FIX)
    if isinstance(error, UserError):
        return WriteFailure(error.what, fix if number else error.fix)
    if isinstance(error, OSError):
        return WriteFailure(f'"{name}" cannot be written: {error.strerror or error}.', fix)
    return WriteFailure(f'"{name}" cannot be written: {type(error).__name__}: {error}.', fix)


def print_loss(loss: Loss, whole: Sequence[int]) -> None:
    """Print that the recording ended, why, and how much of it can be read.

    Args:
        loss: The end of the recording.
        whole: The steps that were written completely.
    """
    remains = [loss.remains]
    if whole:
        remains.append(f"{format_steps(whole).capitalize()} can be read as a whole.")
    messages.print_error(
        f"{loss.failure.what} Recording stopped in step {loss.step}; the training goes on unrecorded.",
        f"{' '.join(remains)} {loss.failure.fix}",
    )


def format_steps(steps: Iterable[int]) -> str:
    """Return steps as a message shows them, such as ``step 3`` or ``steps 0 to 2, 5``."""
    numbers = sorted(steps)
    parts = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        row = [number for _, number in group]
        parts.append(str(row[0]) if len(row) == 1 else f"{row[0]} to {row[-1]}")
    shown = ", ".join(parts)
    return f"step {shown}" if len(numbers) == 1 else f"steps {shown}"
