"""Two runs as matchers see them, with hints on their differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.matching.matching import Matching
from probe_core.model import Suspect
from probe_core.model.batches import RowBatch
from probe_core.model.run import Run
from probe_core.store.layout import RunPair


class Hints:
    """Explanations of differences between two runs, which rows cause; this base class has none.

    Attributes:
        explaining: The explanations so far of rows that differ.
    """

    explaining: Sequence[str] = ()

    def of(self, batch: RowBatch) -> list[str]:
        """Return new explanations of the rows of a batch."""
        return []

    def of_suspects(self, suspects: Sequence[Suspect]) -> list[str]:
        """Return new explanations of the suspects."""
        return []


@dataclass(frozen=True, slots=True)
class Views:
    """The two runs as matchers see them.

    Attributes:
        target: The target, or a view of it with translated names.
        golden: The golden, or a view of it with translated names.
        matcher: The matcher to use: the plan's, or a suitable one if the plan names none.
        notes: Lines for the summary on the names by which the runs are compared.
        hints: Explanations of differences between the runs.
        write_pairs: Function that writes the list of pairs to the output; None if the plan does not ask.
        compared: The runs to measure, if not those that were opened; their values may be parts of these.
    """

    target: Run
    golden: Run
    matcher: str
    notes: tuple[str, ...] = ()
    hints: Hints = field(default_factory=Hints)
    write_pairs: Callable[[RunPair, Matching, Run, Run], Sequence[Path]] | None = None
    compared: tuple[Run, Run] | None = None
