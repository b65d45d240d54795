"""What the factories of the specs make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from probe_precheck.model import Call, Judged, Judgement, Numbers, Outcome, Output
from probe_precheck.settings import RunnerOptions

from probe_core.matching.matching import Matching
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
from probe_core.plugins.specs import Place, Pool
from probe_core.store.layout import RunPair
from probe_core.store.run import Run

if TYPE_CHECKING:
    from probe_core.plugins.manager import Manager


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


class Runner(Protocol):
    """Runs recorded calls of one framework alone, on a device and as the reference. Lives in one process."""

    def apis(self) -> Set[str]:
        """The bare names of all APIs that can be recorded, for black and white lists."""

    def open(self, options: RunnerOptions) -> str:
        """Get ready to run calls; the name of the device in use.

        Raises:
            UserError: The device, or the framework, is not there.
        """

    def run(self, call: Call) -> Outcome:
        """Run one call on both sides. What it raises becomes a SKIP row with the error's text."""

    def save(self, call: Call, outcome: Outcome) -> str:
        """Save the data of a call that did not pass, and a script that shows it; the script's path."""


class Reference(Protocol):
    """An API in higher precision. The values are the framework's own, tensors among them."""

    def forward(self, *arguments: object, **keywords: object) -> object:
        """What the API gives out, computed in the precision of the tensors that it is given."""


class StatusRule(Protocol):
    """The first stage: is one output right, as far as a single machine can tell?"""

    def judge(self, output: Output) -> Judged:
        """The status of one output with what was measured for it."""


@runtime_checkable
class SoloRule(StatusRule, Protocol):
    """A first stage with a second verdict: what a standard can tell without a second machine."""

    def judge_alone(
        self, output: Output, standard: str, numbers: Mapping[str, float | int], direction: str
    ) -> Judged:
        """The verdict on one output that has a shape and a class of dtype in common with its reference.

        Args:
            output: Both sides.
            standard: The standard that judges its API; empty where none does.
            numbers: What that standard measured.
            direction: ``forward`` or ``backward``.
        """


class Standard(Protocol):
    """A precision standard. ``release`` says whose thresholds: ``seed`` or ``8.3``."""

    def measure(self, output: Output, release: str) -> Mapping[str, float | int]:
        """What the details need of one output, by column key.

        Called for float16, bfloat16 and float32 arrays of one shape; a standard that judges exactly is
        called for every other dtype as well.
        """

    def judge(self, npu: Numbers, gpu: Numbers, release: str) -> Judgement:
        """The verdict on one row of the device under test, given the same row of the device to trust.

        Raises:
            UnusableCell: A cell that is needed holds no number.
        """


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
