"""What the factories of the specs make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from concurrent import futures

    from probe_core.matching.matching import Matching
    from probe_core.model import Cell, Colour, Mark, Measurement, Measurements, Row, Verdict
    from probe_core.model.measure import OpenPair
    from probe_core.model.plan import Plan
    from probe_core.store.run import Run


class Reader(Protocol):
    """Opens the runs of one framework."""

    def sniff(self, path: Path) -> int:
        """How sure the reader is that the record file ``path`` is its own, from 0 to 100."""

    def open(self, path: Path) -> Run:
        """The run in ``path``; raises UserError where it cannot be read."""


class Matcher(Protocol):
    """Pairs two runs."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Which golden slot each target slot is compared with."""


class Metric(Protocol):
    """Measures one pair, in as many columns as its spec names."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """One measurement a column. Called only for pairs that can be measured."""


class Policy(Protocol):
    """Judges one pair by its measurements."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on a pair; called for pairs without partner as well."""


class Highlighter(Protocol):
    """Marks rows of one op by looking at all of them."""

    def mark(self, rows: Sequence[Row]) -> Mapping[int, Mark]:
        """The mark of each marked row, by its position in ``rows``."""


class Place(Enum):
    """Where the workers of a pool are."""

    HERE = "in this process"
    MACHINE = "in processes of this machine"
    CLUSTER = "on other machines, or as good as"


class Pool(NamedTuple):
    """Workers, and how many calls they take at a time."""

    executor: futures.Executor
    size: int


class Executor(Protocol):
    """A place where comparisons run: processes of this machine, a cluster."""

    place: Place

    def open(self, jobs: int, scheduler: str | None) -> Pool:
        """Workers that take ``jobs`` calls at a time, fewer where there are no more; with 0, all there are.

        ``scheduler`` is the address that was given with ``--scheduler``. What is called, with its arguments
        and its result, can be pickled.

        Raises:
            UserError: There is no such scheduler, or no worker.
        """


class TableWriter(Protocol):
    """A file being written."""

    def write(self, cells: Sequence[Cell], colour: Colour | None) -> None:
        """Append one row."""

    def close(self) -> None:
        """Complete the file at the path it was opened for."""

    def abandon(self) -> None:
        """Let go of the file without completing it; its path is removed by the caller."""


class Reporter(Protocol):
    """Writes tables in one format."""

    def open(self, path: Path, headers: Sequence[str], row_count: int) -> TableWriter:
        """Begin a table of ``row_count`` rows at ``path``."""

    def line(self, row: int, row_count: int) -> str:
        """Where the row with 0-based number ``row`` stands in the finished file, for a person."""
