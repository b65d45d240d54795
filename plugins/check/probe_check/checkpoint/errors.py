"""Errors for files that are not valid checkpoints."""

from __future__ import annotations

from pathlib import Path

from probe_core.errors import UserError, make_printable

DEFAULT_FIX = "Give another checkpoint, or write this one again."


class UnreadableCheckpoint(UserError):
    """A checkpoint that is missing, damaged, or of a format that is not supported.

    Args:
        path: The file or directory.
        problem: The problem, to follow the path in a sentence, without a period.
        fix: A sentence on how to correct it.
    """

    def __init__(self, path: Path, problem: str, fix: str = DEFAULT_FIX) -> None:
        super().__init__(f"{path} {make_printable(problem)}.", fix)
        self._arguments = path, problem, fix

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), self._arguments


class TensorProblem(Exception):
    """A reason why a single tensor cannot be compared, to follow its name in a sentence."""
