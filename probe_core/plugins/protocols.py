"""What the factories of the specs make."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from concurrent import futures
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from probe_precheck.model import Call, Judged, Judgement, Numbers, Outcome, Output
from probe_precheck.settings import RunnerOptions

from probe_core.matching.matching import Matching
from probe_core.model import Cell, Colour, Mark, Measurement, Measurements, Row, Verdict
from probe_core.model.measure import OpenPair
from probe_core.model.plan import Plan
from probe_core.model.run import Run


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
