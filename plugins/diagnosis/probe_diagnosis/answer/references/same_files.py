"""Detection of a run that is compared with itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from probe_core.model.answers import Answer
from probe_core.store.layout import RunPair

SAME_FILES_CLAUSE = "the target and the golden are the same files: the run was compared with itself"
"""End of the verdict on a run that was compared with itself."""


def is_same_file(path: Path, other_path: Path) -> bool:
    """Return True if two paths name one file, directly or through links."""
    try:
        return path.samefile(other_path)
    except OSError:  # the file is remote, or was removed
        return path.resolve() == other_path.resolve()


def state_same_files(answer: Answer, pairs: Iterable[RunPair]) -> Answer:
    """Add to the verdict that a run was compared with itself, if each pair is a single file."""
    if not all(is_same_file(pair.target, pair.golden) for pair in pairs):
        return answer
    return replace(answer, text=f"{answer.text}; {SAME_FILES_CLAUSE}")
