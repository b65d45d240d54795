"""What a comparison comes to: counts, first suspects, the files written. Grows as rows pass by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from probe_core.model import GRAVITY, Advice, Counts, Level, Mode, Op, Row, Suspect
from probe_core.model.watched import Watch


class Finder(Protocol):
    """Finds the rows to look at first as the rows of each op pass by."""

    @property
    def found(self) -> list[Suspect]:
        """The suspects, the most telling first."""

    @property
    def first_failure(self) -> Suspect | None:
        """The first row that fails by the rule of its table and not by rounding."""

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Look at the rows of one op; ``lines`` says where each stands in the files."""


@dataclass(slots=True)
class Kept:
    """The suspects of a comparison that was made before, or none where nobody looks for any."""

    found: list[Suspect] = field(default_factory=list)
    first_failure: Suspect | None = None

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Look at nothing."""


@dataclass(slots=True)
class Report:
    """The outcome of comparing one target file with one golden file.

    ``faults`` says which files a plugin failed to write.
    """

    label: str
    target: Path
    golden: Path
    mode: Mode
    row_count: int
    op_count: int = 0
    counts: Counts = field(default_factory=Counts)
    finder: Finder = field(default_factory=Kept)
    watch: Watch | None = None
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    files: list[Path] = field(default_factory=list)
    advice: Advice | None = None
    notes: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    regions: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def level(self) -> Level:
        """The gravest level of any row; calls that do not line up are worth a warning."""
        found = [level for level, count in self.counts.levels.items() if count]
        found += [Level.WARNING] if self.regions else []
        return max(found, key=GRAVITY.__getitem__, default=Level.PASS)

    @property
    def is_judged(self) -> bool:
        """True where rows were measured, and all that was asked for was."""
        return not self.problems

    @property
    def suspects(self) -> list[Suspect]:
        """Where to look first."""
        return self.finder.found

    @property
    def first_failure(self) -> Suspect | None:
        """The first row that fails by the rule of its table."""
        return self.finder.first_failure

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Take in the rows of one op; ``lines`` says where each stands in the files."""
        self.op_count += 1
        watch = self.watch = self.watch or Watch(self.mode)
        for row in rows:
            self.counts.levels[row.verdict.level] += 1
            self.counts.measured += watch.look(row)
            if row.pair.matched:
                self.counts.matched += 1
            elif row.pair.golden is None:
                self.counts.target_only += 1
            else:
                self.counts.golden_only += 1
        self.finder.add(op, rows, lines)

    def conclude(self) -> None:
        """Note what was not measured, once all rows passed."""
        watch = self.watch = self.watch or Watch(self.mode)
        self.notes += watch.notes()
        self.problems += watch.problems(self.counts.rows)
