"""Interfaces of the objects that the factories of specs make.

An object may implement further methods, which are interfaces of their own: a metric that measures whole batches is a
``BatchMetric``. Such an interface is checked at runtime by the names of its methods.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from probe_core.plugins.specs import TableSpec

if TYPE_CHECKING:
    from probe_core.errors import UserError
    from probe_core.matching.matching import Matching
    from probe_core.matching.views import Views
    from probe_core.model import Cell, Column, Measurement, Measurements, Mode, Op, Row, Ruling, Suspect, Verdict
    from probe_core.model.answers import Answer
    from probe_core.model.batches import RowBatch
    from probe_core.model.measure import OpenPair, PairGroup
    from probe_core.model.plan import Plan
    from probe_core.model.report import MetricUse, Report, ReportDraft, RowCheck
    from probe_core.model.results import MeasurementColumn, VerdictColumn
    from probe_core.model.run import Run
    from probe_core.plugins.blame import FailureListener
    from probe_core.plugins.manager import Manager
    from probe_core.store.layout import Pairing, RecordFiles, RunPair


class Reader(Protocol):
    """A reader of the runs of one framework."""

    def sniff(self, path: Path) -> int:
        """Return the confidence, from 0 to 100, that ``path`` is a record file of this reader."""

    def open(self, path: Path) -> Run:
        """Open the run in ``path``, or raise UserError if it cannot be read."""


class Matcher(Protocol):
    """A way of pairing two runs."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Return the golden slot of each target slot."""


class Viewer(Protocol):
    """A translation of the names of two runs for matchers."""

    def check(self, plan: Plan) -> None:
        """Raise UserError if a mapping file of the plan is not valid, before any run is opened."""

    def views(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> Views | None:
        """Return both runs as the plan's matcher sees them; None to leave them as they are."""


@runtime_checkable
class SelectingViewer(Protocol):
    """A viewer that may leave out records before any view is made."""

    def select(self, target: Run, golden: Run) -> tuple[Run, Run, Sequence[str]]:
        """Return both runs without these records, and sentences on them."""


class Metric(Protocol):
    """A measurement of one pair, in as many columns as its spec names."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return a measurement per column. Called only for pairs that can be measured."""


@runtime_checkable
class GroupMetric(Protocol):
    """A metric that measures pairs together. Its method ``measure``, if it has one, measures all other pairs."""

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the measurements of all pairs of a group for each column. Both tensors of each pair are open."""


@runtime_checkable
class BatchMetric(Protocol):
    """A metric that reads recorded values, and measures batches without opening tensors."""

    def measure_batch(self, batch: RowBatch) -> list[MeasurementColumn]:
        """Return the measurements of all rows of a batch for each column."""


class Policy(Protocol):
    """A rule that judges one pair by its measurements."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on a pair. Called for pairs without partner as well."""


@runtime_checkable
class GroupPolicy(Policy, Protocol):
    """A policy that judges pairs together."""

    def judge_group(self, group: PairGroup, measurements: Mapping[str, MeasurementColumn]) -> VerdictColumn:
        """Return the verdicts on all pairs of a group. Both tensors of each pair are open."""


@runtime_checkable
class BatchPolicy(Protocol):
    """A policy that judges batches without opening tensors."""

    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdicts on all rows of a batch."""


@runtime_checkable
class PartialBatchPolicy(BatchPolicy, Protocol):
    """A policy that judges batches of some kinds of data only, and single pairs or groups of all others."""

    batch_modes: Collection[Mode]


class Judge(Protocol):
    """A rule on the rows of an op, applied after the policy. A judge sees the ops of one comparison in order."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by the row's position in ``rows``."""


@runtime_checkable
class BatchJudge(Protocol):
    """A judge that receives whole batches, each with all rows of its ops."""

    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by the row's position in the batch."""


@dataclass(frozen=True, slots=True)
class OpenComparison:
    """Two opened runs that are about to be compared.

    Attributes:
        plan: The plan of the comparison.
        manager: The plugins.
        target: The run under test.
        golden: The trusted run.
        mode: The kind of data in both runs.
        is_debug: True for variables that a script saved on their own.
        has_stacks: True if the table shows call stacks.
        shown: The metrics of the table with their columns.
        added_columns: The metrics that the plan adds to the table, with their columns.
        label_policies: The policies whose labels have columns of their own.
        metric_uses: The metrics that are measured.
        note_failure: Function that notes that a plugin failed, and the effect on the result.
    """

    plan: Plan
    manager: Manager
    target: Run
    golden: Run
    mode: Mode
    is_debug: bool
    has_stacks: bool
    shown: Sequence[tuple[str, str]]
    added_columns: Sequence[tuple[str, str]]
    label_policies: Sequence[str]
    metric_uses: Sequence[MetricUse]
    note_failure: FailureListener

    def columns(self, mode: Mode) -> Sequence[Column]:
        """Return the columns of the table of ``mode``."""
        columns: Sequence[Column] = self.manager.find("tables", mode.value, TableSpec).make()
        return columns


class Comparer(Protocol):
    """A function that makes a further comparison for a verdict, with the judges of the first one."""

    def __call__(self, plan: Plan, target: Path, golden: Path, rank: int) -> Iterator[RowBatch]:
        """Yield the judged batches of two record files."""


class Finder(Protocol):
    """A search for the suspects. A finder is also a ``RowFinder`` or a ``BatchFinder``, which receive the rows."""

    @property
    def found(self) -> list[Suspect]:
        """The suspects, most important first."""

    first_failure: Suspect | None
    """The first row that fails by the rule of its table rather than by rounding."""

    def answer(self, draft: ReportDraft, opened: OpenComparison, pair: RunPair, compare: Comparer) -> Answer | None:
        """Return the verdict on two runs after the last row; it may need further comparisons by ``compare``."""

    def plain(self) -> Any:
        """Return the state of the finder as JSON data, for a resumed comparison."""

    def restore(self, plain: Any) -> None:
        """Restore the state that ``plain`` returned."""


class RowFinder(Finder, Protocol):
    """A finder that sees the rows of each op in order."""

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Add the rows of one op; ``lines`` are their positions in the result files."""


@runtime_checkable
class BatchFinder(Protocol):
    """A finder that receives whole batches."""

    def add_batch(self, batch: RowBatch, lines: Sequence[str]) -> None:
        """Add the rows of a batch; ``lines`` are their positions in the result files."""


class WitnessFile(Protocol):
    """The file of an observer of one comparison, which receives the judged rows in the order of the target's run."""

    def close(self, *, interrupted: bool = False) -> Path:
        """Complete the observer's file and return its path."""

    def discard(self) -> None:
        """Remove everything written so far."""


class Witness(WitnessFile, Protocol):
    """An observer of the rows of each op."""

    def write(self, op: Op, rows: Sequence[Row]) -> None:
        """Observe the rows of one op."""


@runtime_checkable
class BatchWitness(WitnessFile, Protocol):
    """An observer of whole batches."""

    def write_batch(self, batch: RowBatch) -> None:
        """Observe the rows of a batch."""


class Conclusion(Protocol):
    """A conclusion that can be printed: on all steps, or on a single step."""

    @property
    def answer(self) -> Answer | None:
        """The verdict on all comparisons; None for a conclusion on anything else."""

    @property
    def is_judged(self) -> bool:
        """Return True if there was anything to judge."""

    def show(self, *, brief: bool = False) -> None:
        """Print the answer, in one line if ``brief`` is set."""


@dataclass(frozen=True, slots=True)
class PairResult:
    """A comparison that ended with a report or an error.

    Attributes:
        finder: The finder that saw its rows, for verdicts over several ranks; None if no plugin has one.
        resumed: True if an earlier command made it.
    """

    pair: RunPair
    report: Report | None = None
    error: UserError | None = None
    finder: Finder | None = None
    resumed: bool = False

    @property
    def interrupted(self) -> bool:
        """Return True if the comparison was interrupted and its report covers only some rows."""
        return self.report is not None and self.report.interrupted


@dataclass(frozen=True, slots=True)
class AllResults:
    """All comparisons of a plan that have ended; fewer than there are pairs if they were interrupted.

    ``answer`` is the verdict over all of them, once it is known.
    """

    plan: Plan
    manager: Manager
    pairing: Pairing
    finished: Sequence[PairResult]
    answer: Answer | None = None


class Answerer(Protocol):
    """A component that draws conclusions from all comparisons of a plan."""

    def witness(self, opened: OpenComparison, pair: RunPair) -> Witness | BatchWitness | None:
        """Return the observer of one comparison's rows; None if there is nothing to observe."""

    def conclude(self, compared: AllResults) -> Iterable[Conclusion]:
        """Return the conclusions, once all comparisons have ended."""


@runtime_checkable
class RevisingAnswerer(Protocol):
    """An answerer that may replace the verdicts of comparisons before any conclusion is drawn."""

    def revise(self, compared: AllResults) -> Sequence[PairResult]:
        """Return all comparisons with their final verdicts."""


class PlanOption(Protocol):
    """A function that changes the plan of ``compare`` for the options of a plugin."""

    def __call__(self, plan: Plan, values: Mapping[str, Any], option_names: Set[str]) -> Plan:
        """Return the plan to carry out; ``option_names`` are the names of the options that the user gave."""


class Scheduler(Protocol):
    """A search for the record files of a plan, and a distribution of their comparisons over workers."""

    def pair_runs(self, plan: Plan, formats: RecordFiles) -> Pairing:
        """Return the record files to compare, by step and rank; ``formats`` are the names of record files."""

    def find_interrupted(self, plan: Plan) -> str | None:
        """Return the time stamp of the interrupted comparison that ``plan`` resumes; None if there is none."""

    def run(self, plan: Plan, manager: Manager, pairs: Sequence[RunPair]) -> Iterator[PairResult]:
        """Yield each comparison when it ends, in any order.

        An error of one comparison is part of its result. Results of an earlier command are yielded first.
        """


@runtime_checkable
class NotebookPage(Protocol):
    """A reporter that shows the verdict in a notebook."""

    def head(self, comparison: Any) -> str:
        """Return the verdict as HTML."""


class CellTable(Protocol):
    """The columns of a table, which create cells from rows."""

    headers: Sequence[str]

    def iterate_rows(self, batch: RowBatch, *, all_digits: bool = False) -> Iterator[Sequence[Cell]]:
        """Yield the cells of each row of a batch."""


class ResultFiles:
    """The result files of one comparison; this base class writes none.

    Attributes:
        faults: Sentences on the files that a plugin failed to write.
    """

    def __init__(self) -> None:
        self.faults: list[str] = []

    def line(self, row: int) -> str:
        """Return the position of a row, counted from 0, in the first file; empty if there is no file."""
        return ""

    def write(self, batch: RowBatch) -> None:
        """Append the rows of a batch to all files."""

    def close(self, answer: Answer | None, *, interrupted: bool = False) -> list[Path]:
        """Complete the files, with the answer in files that hold answers, and return their paths."""
        return []

    def complete(self, report: Report, explanations: Sequence[str]) -> Report:
        """Return the report with what is added to it at the end; ``explanations`` are of known differences."""
        return report

    def discard(self) -> None:
        """Remove all files."""


class Output(Protocol):
    """The conversion of the rows of comparisons into tables and result files."""

    def reserve_time_stamp(
        self, plan: Plan, parts: Set[str], *, is_resumed: bool = False
    ) -> AbstractContextManager[str]:
        """Return a context that reserves the plan's time stamp, or the next free one, for result files.

        Args:
            plan: The plan.
            parts: The subdirectories of the output that hold results.
            is_resumed: True to complete the results of exactly this time stamp.

        Raises:
            UserError: The output directory is not writable, or the comparison to resume is still running.
        """

    def find_metrics(self, plan: Plan, manager: Manager, mode: Mode) -> Sequence[str]:
        """Return the metrics that the result files need in addition to those of the table."""

    def create_table(self, opened: OpenComparison) -> CellTable:
        """Return the table of the mode of two runs."""

    def create_check(self, opened: OpenComparison) -> RowCheck:
        """Return an object that checks whether rows are measured, and whether each metric measures any."""

    def open_files(self, opened: OpenComparison, pair: RunPair, draft: ReportDraft) -> ResultFiles:
        """Return the result files of a comparison, which are written while ``draft`` is filled."""
