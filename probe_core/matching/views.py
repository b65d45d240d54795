"""Two runs as matchers see them, and what is known of their differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.matching.matching import Matching
from probe_core.model import Row, Suspect
from probe_core.model.run import Run
from probe_core.store.layout import RunPair


class Hints:
    """Says what may explain that two runs differ, as their rows pass by; this one knows nothing.

    Attributes:
        explaining: What was said because something differs.
    """

    explaining: Sequence[str] = ()

    def of(self, op: str, rows: Sequence[Row]) -> list[str]:
        """Return what is to be said because of the rows of one op; nothing that was said before."""
        return []

    def of_suspects(self, suspects: Sequence[Suspect]) -> list[str]:
        """Return what is to be said because calls are suspect; nothing that was said before."""
        return []


@dataclass(frozen=True, slots=True)
class Views:
    """The two runs as matchers see them.

    Attributes:
        target: The target, or a view of it in other words.
        golden: The same of the golden.
        matcher: The matcher to use: the plan's, or where it names none the one that fits the runs.
        notes: Lines for the summary: in which words the runs are compared.
        hints: What is known of the differences of both runs.
        write_pairs: Writes what was paired with what, into the plan's output; None where nobody asked for it.
    """

    target: Run
    golden: Run
    matcher: str
    notes: tuple[str, ...] = ()
    hints: Hints = field(default_factory=Hints)
    write_pairs: Callable[[RunPair, Matching, Run, Run], Sequence[Path]] | None = None
