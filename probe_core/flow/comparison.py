"""A comparison of two runs: opened and matched, with rows that are measured and judged on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from probe_core.errors import UserError, find_nearest_names, format_count, format_list
from probe_core.flow.ahead import group_pairs, measure_ahead
from probe_core.flow.judging import JudgeChain
from probe_core.flow.opening import open_runs
from probe_core.flow.tools import Tools
from probe_core.flow.viewing import check_views, create_views, select_records
from probe_core.matching.matching import ROW_COST, Matching, Region, RowOrder
from probe_core.model import Column, Mode, Op
from probe_core.model.batches import RowBatch
from probe_core.model.measure import Array, OpenPair, PairGroup
from probe_core.model.plan import Plan, StackMode
from probe_core.model.report import MetricUse
from probe_core.model.run import Run
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Matcher, Output
from probe_core.plugins.specs import (
    AnswerSpec,
    FinderSpec,
    MatcherSpec,
    MetricSpec,
    OutputSpec,
    PolicySpec,
    ReporterSpec,
    TableSpec,
    address,
)
from probe_core.store.layout import RunPair
from probe_core.store.names import drop_count, is_gradient

MAX_LISTED_UNREADABLE = 5
"""Number of unreadable files that the summary names."""
MAX_BATCH_ROWS, MAX_BATCH_COST = 4096, 512 * ROW_COST
"""Limits of a batch: the number of rows, and their total cost if tensors are measured."""
MAX_LISTED_REGION_CALLS = 6
"""Number of calls of a region that are named."""


def check_plan(plan: Plan, manager: Manager) -> None:
    """Check the names and files in a plan before any run is opened.

    Raises:
        UserError: A mapping file cannot be read, a format cannot be written, or a name does not exist.
    """
    for kind, names, spec in (
        ("reporters", plan.formats, ReporterSpec),
        ("matchers", [plan.matcher] if plan.matcher else [], MatcherSpec),
        ("metrics", plan.metrics, MetricSpec),
        ("policies", plan.policies, PolicySpec),
    ):
        for name in names:
            chosen = manager.find(kind, name, spec)
            if isinstance(chosen, ReporterSpec) and chosen.check:
                with blame_plugin(chosen.title, chosen.origin):
                    address(chosen.check)()
    check_views(plan, manager)


class RunComparison:
    """Two opened and matched runs, with the metrics and policies for the kind of data in them."""

    def __init__(self, plan: Plan, manager: Manager, target: Path, golden: Path) -> None:
        self.plan = plan
        self.manager = manager
        self.notes: list[str] = []
        self.unreadable: list[str] = []
        self.unreadable_count = 0
        self.target, self.golden, notes = select_records(manager, *open_runs(plan, manager, target, golden))
        self.notes += notes
        for side, run in (("target", self.target), ("golden", self.golden)):
            if run.header.unfinished:
                self.notes.append(
                    f"the {side} is unfinished, and calls after its last record are missing: {run.header.unfinished}"
                )
        self.mode = self.target.mode
        self.is_debug = self.target.is_debug
        answers = () if self.is_debug else plan.answers  # answers concern calls, not saved variables
        answer_specs = [manager.find("answers", name, AnswerSpec) for name in answers]
        self.finders = manager.specs("finders", FinderSpec)[:1]
        requesting_specs: list[AnswerSpec | FinderSpec] = [*answer_specs, *self.finders]
        output: Output | None = manager.make_first("outputs", OutputSpec)
        output_metrics = () if output is None else output.find_metrics(plan, manager, self.mode)
        blame = partial(_blame, self.notes)  # not a bound method, which would keep a failed comparison alive
        self._tools = Tools(plan, manager, self.mode, requesting_specs, output_metrics, blame)
        run_views = create_views(plan, manager, self.target, self.golden)
        self.notes += run_views.notes
        self.target, self.golden = run_views.compared or (self.target, self.golden)
        self.hints, self._write_pairs = run_views.hints, run_views.write_pairs
        self._matcher = run_views.matcher
        by_option = (spec.name for spec in manager.specs("matchers", MatcherSpec) if spec.is_selected_by(plan.options))
        spec = manager.find("matchers", next(by_option, run_views.matcher), MatcherSpec)
        matcher: Matcher = spec.make()
        with blame_plugin(spec.title, spec.origin):
            matching = matcher.match(run_views.target, run_views.golden, replace(plan, matcher=run_views.matcher))
            if not isinstance(matching, Matching):
                raise TypeError(f"match must return a Matching, not {type(matching).__name__}")
        if not matching.matched:
            raise _create_no_match_error(self.target, self.golden, run_views.notes)
        self.matching = matching
        self._order = RowOrder(matching, self.target, self.golden)
        self.row_count = self._order.row_count
        self._limit = (MAX_BATCH_COST, self._order.compute_costs()) if self.mode is Mode.TENSOR else (MAX_BATCH_ROWS,)
        self.regions = [_describe_region(region, self.target, self.golden) for region in matching.regions]
        self._shifted = self._find_shifted()
        self.has_stacks = self._use_stacks()
        self.shown: Sequence[tuple[str, str]] = self._tools.shown
        self.added_columns: Sequence[tuple[str, str]] = self._tools.added_columns
        self.label_policies: Sequence[str] = self._tools.label_policies
        self.metric_uses: Sequence[MetricUse] = self._tools.metric_uses

    def again(self, plan: Plan, target: Path, golden: Path, rank: int) -> Iterator[RowBatch]:
        """Yield the batches of a comparison of two other runs, judged by the same judges."""
        with closing(RunComparison(plan, self.manager, target, golden)) as further:
            judging = JudgeChain(self.manager, self.blame)
            for batch in further.batches(rank):
                judging.apply(batch)
                yield batch

    def write_pairs(self, pair: RunPair) -> Sequence[Path]:
        """Write the list of pairs if the plan requests it, and return the files."""
        write = self._write_pairs
        return () if write is None else write(pair, self.matching, self.target, self.golden)

    def batches(self, rank: int = 0, start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the measured rows of the target's ops from ``start`` up to ``stop``, in table order."""
        order = self._order
        spans = order.yield_spans(start, len(order.ops) if stop is None else stop, *self._limit)
        batches = (self.batch(first, last, rank) for first, last in spans)
        for batch in self._measure_by_pair(batches) if self._tools.opens_pairs else batches:
            if not self._tools.opens_pairs:
                self._tools.begin(batch)
            self._tools.end(batch)
            yield batch

    def batch(self, start: int, stop: int, rank: int = 0) -> RowBatch:
        """Return the unmeasured rows of the target's ops from ``start`` up to ``stop``."""
        return self._order.create_batch(start, stop, partial(self.describe, rank=rank), self._find_stack)

    def chunks(self, count: int) -> list[tuple[int, int]]:
        """Split the target's ops into about ``count`` ranges of equal cost, as (start, stop)."""
        costs = self._order.compute_costs()
        return [*self._order.yield_spans(0, len(self._order.ops), costs.sum() / max(1, count), costs)]

    def columns(self, mode: Mode) -> Sequence[Column]:
        """Return the columns of the table of ``mode``."""
        columns: Sequence[Column] = self.manager.find("tables", mode.value, TableSpec).make()
        return columns

    def take_unreadable(self, lines: Sequence[str], count: int) -> None:
        """Add tensor files that a worker could not read."""
        self.unreadable_count += count
        self.unreadable += lines[: MAX_LISTED_UNREADABLE - len(self.unreadable)]

    def take_notes(self, lines: Sequence[str]) -> None:
        """Add the notes of a worker without repeating notes."""
        self.notes += [line for line in lines if line not in self.notes]

    def describe(self, op: str, rank: int) -> Op:
        """Return the context of an op for judges and the report."""
        ancestors = self.target.construct.ancestors(op)
        is_shifted = bool(self._shifted) and drop_count(op) in self._shifted
        return Op(op, ancestors, is_shifted, rank, self.mode is Mode.TENSOR)

    def close(self) -> None:
        """Close both runs."""
        self.target.close()
        self.golden.close()

    def _find_stack(self, op: str) -> tuple[str, ...] | None:
        return None if is_gradient(op) else self.target.stack_of(op)

    def _open_pairs(self, batches: Iterable[RowBatch]) -> Iterator[tuple[tuple[RowBatch, int], PairGroup]]:
        """Yield all pairs as groups of open pairs, each with its batch and its first row."""
        for batch in batches:
            pairs = (
                OpenPair(pair, self.mode, self.target, self.golden, self._tools.names)
                for pair in batch.pairs(0, len(batch))
            )
            first = 0
            for group in group_pairs(pairs):
                yield (batch, first), group
                first += len(group)

    def _measure_by_pair(self, batches: Iterable[RowBatch]) -> Iterator[RowBatch]:
        measured_groups = measure_ahead(self._open_pairs(batches), self._tools.ahead)
        for batch, groups in groupby(measured_groups, key=lambda item: item[0][0]):
            self._tools.begin(batch)
            for (_, first), group in groups:
                self._measure(batch, np.arange(first, first + len(group)), group)
            yield batch

    def blame(self, error: PluginError, consequence: str) -> None:
        """Add a note that a plugin failed and on the consequence for the result, unless it was added before."""
        _blame(self.notes, error, consequence)

    def _measure(self, batch: RowBatch, lines: Array, group: PairGroup) -> None:
        """Measure a group, and measure rows whose mapped files changed meanwhile again, as unreadable."""
        try:
            self._tools.measure_group(batch, lines, group)
            memories = {memory for pair in group for memory in pair.mappings}
            checked = {memory: None if memory is None else memory.find_problem() for memory in memories}
            problems = {memory: problem for memory, problem in checked.items() if problem is not None}
            changed_places = [place for place, pair in enumerate(group) if pair.invalidate(problems)]
            if changed_places:
                self._tools.measure_group(batch, lines[changed_places], PairGroup([group[n] for n in changed_places]))
        finally:
            for pair in group:
                pair.close()
        for pair in group:
            if pair.unreadable is not None and not pair.unreadable.missing:
                self.take_unreadable([str(pair.unreadable)], 1)

    def _find_shifted(self) -> frozenset[str]:
        """Return the APIs that one run calls more often, if calls are paired by their numbers."""
        if self._matcher != "exact" or self.is_debug:
            return frozenset()
        target_counts, golden_counts = (
            Counter(drop_count(name) for name in run.names() if not name.startswith("Module."))
            for run in (self.target, self.golden)
        )
        names = target_counts.keys() & golden_counts.keys()
        shifted = {name for name in names if target_counts[name] != golden_counts[name]}
        if shifted:
            first = next(name for name in map(drop_count, self.target.names()) if name in shifted)
            self.notes.append(
                f"one run calls {format_count(len(shifted), 'API')} more often, such as {first}; their rows may "
                "be paired incorrectly and do not affect the verdict. Use -f (calls in order) or --match align."
            )
        return frozenset(shifted)

    def _use_stacks(self) -> bool:
        path = self.plan.stack_path or self.target.stack_path
        if self.is_debug or self.plan.stack is StackMode.HIDE:
            return False
        if path is None or (self.plan.stack is StackMode.AUTO and not path.is_file()):
            return False
        self.target.use_stacks(path)
        return True


def _describe_region(region: Region, target: Run, golden: Run) -> str:
    """Return the description of a region without partners for the summary."""
    target_names, golden_names = (
        format_list([run.names()[index] for index in side], MAX_LISTED_REGION_CALLS)
        for run, side in ((target, region.target), (golden, region.golden))
    )
    if target_names and golden_names:
        return f"changed: {target_names} for {golden_names}"
    return f"inserted: {target_names}" if target_names else f"missing: {golden_names}"


def _blame(notes: list[str], error: PluginError, consequence: str) -> None:
    """Note once that a plugin failed."""
    note = f"{error.what} {consequence} {error.fix}"
    if note not in notes:
        notes.append(note)


def _create_no_match_error(target: Run, golden: Run, notes: Sequence[str]) -> UserError:
    """Return the error for two runs without any pair, with the nearest names."""
    what = "No row of the target has a partner in the golden."
    if notes and target.header.framework != golden.header.framework:
        first, *more = (f"{note[0].upper()}{note[1:].rstrip('.')}." for note in notes)
        return UserError(what, first, more)
    golden_names = golden.names()
    closest = [(key, find_nearest_names(key, golden_names, 1)) for key in target.names()[:5]]
    lines = [f"{key}  (nearest in the golden: {close[0] if close else 'none'})" for key, close in closest]
    lines += [f"the golden begins with {name}" for name in golden_names[:1]]
    return UserError(
        what,
        "Check that both runs are of the same model and level; -f pairs calls whose counts differ, "
        "-dm pairs names by a file. The target begins with:",
        lines,
    )
