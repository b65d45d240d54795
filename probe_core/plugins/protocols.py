"""What the factories of the specs make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from probe_core.matching.matching import Matching
    from probe_core.matching.views import Views
    from probe_core.model import (
        Cell,
        Colour,
        Column,
        Mark,
        Measurement,
        Measurements,
        Mode,
        Op,
        Row,
        Ruling,
        Verdict,
    )
    from probe_core.model.measure import OpenPair
    from probe_core.model.plan import Plan
    from probe_core.model.run import Run
    from probe_core.plugins.manager import Manager
    from probe_core.plugins.specs import Place, Pool
    from probe_core.store.layout import RunPair


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


class Viewer(Protocol):
    """Shows two runs to matchers in other words than their own."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan whose files cannot be used, before any run is opened; raises UserError."""

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Both runs as the plan's matcher sees them, with hints; None to leave them as they are."""


class Metric(Protocol):
    """Measures one pair, in as many columns as its spec names."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """One measurement a column. Called only for pairs that can be measured."""


class Policy(Protocol):
    """Judges one pair by its measurements."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """The verdict on a pair; called for pairs without partner as well."""


class Judge(Protocol):
    """Looks at the rows of one op after the policy; made for each comparison, asked op by op in order."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """The verdicts to change, by the row's position in ``rows``."""


class Highlighter(Protocol):
    """Marks rows of one op by looking at all of them."""

    def mark(self, rows: Sequence[Row]) -> Mapping[int, Mark]:
        """The mark of each marked row, by its position in ``rows``."""


class Opened(Protocol):
    """Two runs that are about to be compared.

    Attributes:
        plan: The plan of the comparison.
        mode: What both runs hold.
        is_debug: True for variables that a script saved on their own.
        has_stacks: True where the table shows call stacks.
        shown: The metrics of the table with their columns.
        target: The run under test.
    """

    plan: Plan
    mode: Mode
    is_debug: bool
    has_stacks: bool
    shown: Sequence[tuple[str, str]]
    target: Run

    def columns(self, mode: Mode) -> Sequence[Column]:
        """The columns of the table of ``mode``."""


class Witness(Protocol):
    """Sees the rows of one comparison pass by, judged, in the order of the target's run."""

    def write(self, op: Op, rows: Sequence[Row]) -> None:
        """Take in the rows of one op."""

    def close(self, *, interrupted: bool = False) -> Path:
        """Complete what it writes; the file."""

    def discard(self) -> None:
        """Leave nothing behind."""


class Conclusion(Protocol):
    """What an answerer found in one step."""

    @property
    def is_judged(self) -> bool:
        """True where there was something to judge."""

    def show(self) -> None:
        """Print it."""


class Answerer(Protocol):
    """Answers a question about a comparison over all its ranks."""

    def witness(self, opened: Opened, pair: RunPair) -> Witness | None:
        """What looks at the rows of one comparison; None where there is nothing to look at."""

    def conclude(self, plan: Plan, pairs: Sequence[RunPair]) -> Sequence[Conclusion]:
        """What all witnesses together come to, once the comparisons of ``pairs`` have been made."""


class PlanOption(Protocol):
    """Changes the plan of ``compare`` as options of a plugin ask."""

    def __call__(self, plan: Plan, values: Mapping[str, Any], asked: Set[str]) -> Plan:
        """The plan to carry out; ``asked`` are the names of the parameters that were given."""


class MergeOption(Protocol):
    """Work that ``merge_result`` does besides merging, as options of a plugin ask."""

    def __call__(self, manager: Manager, output: Path, format: str, values: Mapping[str, Any]) -> int:
        """Do it; the exit code."""


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
