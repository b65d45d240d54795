"""The outcome of one comparison: counts, suspects and files, collected while rows are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from probe_core.model import GRAVITY, Advice, Level, Mode, Op, Row, RowCounts, Suspect
from probe_core.model.answers import Answer
from probe_core.model.batches import RowBatch
from probe_core.model.watched import MeasurementCheck


class LineNumbers(Sequence[str]):
    """Positions of rows in the result files, each computed when it is read.

    Attributes:
        line: Function that returns the position of a row of the table.
        first: The first row.
    """

    def __init__(self, line: Callable[[int], str], first: int, count: int = 0) -> None:
        self.line, self.first, self._count = line, first, count

    def select(self, lines: range) -> LineNumbers:
        """Return the positions of a range of these rows."""
        return LineNumbers(self.line, self.first + lines.start, len(lines))

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: Any) -> Any:
        if not 0 <= place < self._count:
            raise IndexError(place)
        return self.line(self.first + place)


class Finder(Protocol):
    """A search for the suspects that sees the rows of each op in order.

    A finder with a method ``add_batch(batch, lines)`` gets batches of rows instead.
    """

    @property
    def found(self) -> list[Suspect]:
        """The suspects, most important first."""

    first_failure: Suspect | None
    """The first row that fails by the rule of its table rather than by rounding."""

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Take in the rows of one op; ``lines`` are their positions in the result files."""

    def answer(self, report: Report, opened: Any, pair: Any) -> Answer | None:
        """Return the verdict, after the last row, of two ``protocols.Opened`` runs of a ``RunPair``."""

    def plain(self) -> Any:
        """Return all that was found as JSON data, for a comparison that is resumed."""

    def restore(self, plain: Any) -> None:
        """Take in what ``plain`` returned."""


@dataclass(slots=True)
class NoFinder:
    """A finder that finds nothing, of a comparison without plugins that look for suspects."""

    found: list[Suspect] = field(default_factory=list)
    first_failure: Suspect | None = None

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Ignore the rows."""

    def answer(self, report: Report, opened: Any, pair: Any) -> None:
        """Give no answer."""

    def plain(self) -> None:
        """Keep nothing."""

    def restore(self, plain: Any) -> None:
        """Take in nothing."""


@dataclass(slots=True)
class Report:
    """The outcome of comparing one target file with one golden file.

    Attributes:
        notes: Sentences that the summary shows.
        faults: Sentences on the files that a plugin failed to write.
        problems: Reasons why the comparison gives no verdict; empty if it does.
        regions: Descriptions of the calls that do not line up.
        opened: The ``protocols.Opened`` runs until the files are complete; None after that.
        answer: The verdict on the two runs; None if no plugin gives one.
        interrupted: True if the comparison was stopped before its end.
        seconds: The duration of the comparison.
    """

    label: str
    target: Path
    golden: Path
    mode: Mode
    row_count: int
    op_count: int = 0
    counts: RowCounts = field(default_factory=RowCounts)
    finder: Finder = field(default_factory=NoFinder)
    watch: MeasurementCheck | None = None
    opened: Any = None
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    files: list[Path] = field(default_factory=list)
    advice: Advice | None = None
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    answer: Answer | None = None
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def level(self) -> Level:
        """The worst level of any row; calls that do not line up count as a warning."""
        levels = [level for level, count in self.counts.levels.items() if count]
        levels += [Level.WARNING] if self.regions else []
        return max(levels, key=GRAVITY.__getitem__, default=Level.PASS)

    @property
    def is_judged(self) -> bool:
        """Return True if rows were measured and every metric asked for gave a number."""
        return not self.problems

    @property
    def suspects(self) -> list[Suspect]:
        """The rows to look at first."""
        return self.finder.found

    @property
    def first_failure(self) -> Suspect | None:
        """The first row that fails by the rule of its table."""
        return self.finder.first_failure

    def add(self, batch: RowBatch, lines: LineNumbers) -> None:
        """Count the rows of a batch; ``lines`` are their positions in the result files."""
        self.op_count += len(batch.ops)
        watch = self.watch = self.watch or MeasurementCheck(self.mode)
        counts = self.counts
        for level, count in zip(Level, np.bincount(batch.verdicts.levels, minlength=len(Level)).tolist()):
            counts.levels[level] += count
        counts.measured += watch.look(batch)
        counts.matched += int(batch.is_matched.sum())
        counts.target_only += int((~batch.golden.is_present).sum())
        counts.golden_only += int((~batch.target.is_present).sum())
        add_batch = getattr(self.finder, "add_batch", None)
        if add_batch is not None:
            add_batch(batch, lines)
        elif type(self.finder) is not NoFinder:
            for number, (_, rows) in enumerate(batch.all_rows()):
                self.finder.add(batch.op(number), rows, lines.select(batch.lines(number)))

    def conclude(self) -> None:
        """Note after the last row what could not be measured."""
        watch = self.watch = self.watch or MeasurementCheck(self.mode)
        self.notes += watch.notes()
        self.problems += watch.problems(self.counts.rows)
