"""The outcome of one comparison, and the object that collects it while rows are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from probe_core.model import SEVERITIES, Advice, Level, Mode, RowCounts, Suspect
from probe_core.model.answers import Answer
from probe_core.model.batches import RowBatch
from probe_core.model.columns import Array


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

    def __getitem__(self, index: Any) -> Any:
        if not 0 <= index < self._count:
            raise IndexError(index)
        return self.line(self.first + index)


class FailureNote(str):
    """A sentence on a contribution that failed, with its parts.

    Attributes:
        subject: The contribution and its distribution.
        fix: The last sentence, on how to correct it; empty if there is none.
    """

    subject: str
    fix: str

    def __new__(cls, text: str, subject: str, fix: str = "") -> FailureNote:
        """Return the note with the given parts."""
        note = super().__new__(cls, text)
        note.subject, note.fix = subject, fix
        return note

    def __getnewargs__(self) -> tuple[str, str, str]:  # type: ignore[override]
        return str(self), self.subject, self.fix


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of comparing one target file with one golden file.

    Attributes:
        suspects: The rows to look at first.
        first_failure: The first row that fails by the rule of its table rather than by rounding.
        unreadable: The first few tensor files that could not be read.
        notes: Sentences that the summary shows; some are instances of ``FailureNote``.
        faults: Sentences on the files that a plugin failed to write.
        problems: Sentences on the reasons why the comparison gives no verdict; empty if it does.
        regions: Descriptions of the calls that do not line up.
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
    suspects: tuple[Suspect, ...] = ()
    first_failure: Suspect | None = None
    unreadable: tuple[str, ...] = ()
    unreadable_count: int = 0
    files: tuple[Path, ...] = ()
    advice: Advice | None = None
    notes: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    answer: Answer | None = None
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def level(self) -> Level:
        """The worst level of any row; calls that do not line up count as a warning."""
        levels = [level for level, count in self.counts.levels.items() if count]
        levels += [Level.WARNING] if self.regions else []
        return max(levels, key=SEVERITIES.__getitem__, default=Level.PASS)

    @property
    def is_judged(self) -> bool:
        """Return True if rows were measured and each requested metric measured a row."""
        return not self.problems


class MetricUse(NamedTuple):
    """A metric that a comparison measures.

    Attributes:
        name: The name of the metric, with its parameters.
        origin: The distribution that it comes from, and its version.
        columns: The keys of its measurements in a row.
        is_requested: True if ``--metric`` named it, False if only the table needs it.
    """

    name: str
    origin: str
    columns: tuple[str, ...]
    is_requested: bool


def find_measured_rows(batch: RowBatch) -> Array:
    """Return True for the rows of a batch that were measured and judged."""
    is_judged = batch.verdicts.map_verdicts(lambda verdict: verdict.measured and verdict.level is not Level.SKIP)
    return is_judged & batch.is_matched


class RowCheck:
    """A check whether rows are measured, and metrics measure any; this base class only counts rows."""

    def check_batch(self, batch: RowBatch) -> int:
        """Check a batch, and return the number of its rows that were measured."""
        return int(find_measured_rows(batch).sum())

    def notes(self) -> list[str]:
        """Return sentences on rows of tables without a column for them."""
        return []

    def problems(self, rows: int) -> list[str]:
        """Return the reasons why a comparison of ``rows`` rows gives no verdict; empty if it gives one."""
        return []


@dataclass(slots=True)
class ReportDraft:
    """The outcome of a comparison whose rows are being written; its fields become those of ``Report``."""

    label: str
    target: Path
    golden: Path
    mode: Mode
    row_count: int
    check: RowCheck
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    op_count: int = 0
    counts: RowCounts = field(default_factory=RowCounts)
    answer: Answer | None = None
    interrupted: bool = False

    def add(self, batch: RowBatch) -> None:
        """Count the rows of a batch."""
        self.op_count += len(batch.ops)
        counts = self.counts
        for level, count in zip(Level, np.bincount(batch.verdicts.levels, minlength=len(Level)).tolist()):
            counts.levels[level] += count
        counts.measured += self.check.check_batch(batch)
        counts.matched += int(batch.is_matched.sum())
        counts.target_only += int((~batch.golden.is_present).sum())
        counts.golden_only += int((~batch.target.is_present).sum())

    def conclude(self) -> None:
        """Note after the last row what could not be measured."""
        self.notes += self.check.notes()
        self.problems += self.check.problems(self.counts.rows)

    def build(self, **fields: Any) -> Report:
        """Return the outcome so far; ``fields`` are those of ``Report`` that a draft does not have."""
        shared = {name: getattr(self, name) for name in self.__slots__ if name != "check"}
        lists = {name: tuple(value) for name, value in shared.items() if isinstance(value, list)}
        return Report(**{**shared, **lists}, **fields)
