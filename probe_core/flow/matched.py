"""Two opened runs whose calls are paired, and their rows before these are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from probe_core.errors import UserError, find_nearest_names, format_count, format_list
from probe_core.flow.viewing import create_views
from probe_core.matching.matching import ROW_COST, Matching, Region, RowOrder
from probe_core.matching.views import Views
from probe_core.model import Mode, Op
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan, StackMode
from probe_core.model.run import Run
from probe_core.plugins.blame import blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Matcher
from probe_core.plugins.specs import MatcherSpec
from probe_core.store.layout import RunPair
from probe_core.store.names import drop_count, is_gradient, is_module

MAX_BATCH_ROWS, MAX_BATCH_COST = 4096, 512 * ROW_COST
"""Limits of a batch: the number of rows, and their total cost if tensors are measured."""
MAX_LISTED_REGION_CALLS = 6
"""Number of calls of a region that are named."""


class MatchedRuns:
    """Two matched runs, whose rows are created batch by batch.

    Attributes:
        target: The run under test, or the view of it that is measured.
        golden: The trusted run, or the view of it that is measured.
        hints: Explanations of differences between the runs.
        notes: Sentences for the summary.
        regions: Descriptions of the calls that do not line up.
        row_count: The number of rows.
        has_stacks: True if the call stacks of the target are loaded for the table.
    """

    def __init__(self, plan: Plan, manager: Manager, target: Run, golden: Run) -> None:
        self._mode, is_debug = target.mode, target.is_debug
        views = create_views(plan, manager, target, golden)
        self.target, self.golden = views.compared or (target, golden)
        self.notes = [*views.notes]
        self.hints, self._write_pairs = views.hints, views.write_pairs
        self._matching = _match(plan, manager, views)
        if not self._matching.matched:
            raise _create_no_match_error(self.target, self.golden, views.notes)
        self._order = RowOrder(self._matching, self.target, self.golden)
        self.row_count = self._order.row_count
        self._limit = (MAX_BATCH_COST, self._order.compute_costs()) if self._mode is Mode.TENSOR else (MAX_BATCH_ROWS,)
        self.regions = [_describe_region(region, self.target, self.golden) for region in self._matching.regions]
        self._shifted = self._find_shifted() if views.matcher == "exact" and not is_debug else frozenset()
        self.has_stacks = not is_debug and _use_stacks(plan, self.target)

    def yield_batches(self, rank: int = 0, start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the rows of the target's ops from ``start`` up to ``stop``, in table order."""
        spans = self._order.yield_spans(start, len(self._order.ops) if stop is None else stop, *self._limit)
        return (self.create_batch(first, last, rank) for first, last in spans)

    def create_batch(self, start: int, stop: int, rank: int = 0) -> RowBatch:
        """Return the rows of the target's ops from ``start`` up to ``stop`` as one batch."""
        return self._order.create_batch(start, stop, partial(self._create_op, rank=rank), self._find_stack)

    def split_ops(self, count: int) -> list[tuple[int, int]]:
        """Split the target's ops into about ``count`` ranges of equal cost, as (start, stop)."""
        costs = self._order.compute_costs()
        return [*self._order.yield_spans(0, len(self._order.ops), costs.sum() / max(1, count), costs)]

    def write_pairs(self, pair: RunPair) -> Sequence[Path]:
        """Write the list of pairs if the plan requests it, and return the files."""
        write = self._write_pairs
        return () if write is None else write(pair, self._matching, self.target, self.golden)

    def close(self) -> None:
        """Close both runs."""
        self.target.close()
        self.golden.close()

    def _create_op(self, op: str, rank: int) -> Op:
        """Return the context of an op for judges and the report."""
        ancestors = self.target.construct.ancestors(op)
        is_shifted = bool(self._shifted) and drop_count(op) in self._shifted
        return Op(op, ancestors, is_shifted, rank, self._mode is Mode.TENSOR)

    def _find_stack(self, op: str) -> tuple[str, ...] | None:
        return None if is_gradient(op) else self.target.stack_of(op)

    def _find_shifted(self) -> frozenset[str]:
        """Return the APIs that one run calls more often, whose calls are paired by their numbers."""
        target_counts, golden_counts = (
            Counter(drop_count(name) for name in run.names() if not is_module(name))
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


def _match(plan: Plan, manager: Manager, views: Views) -> Matching:
    """Return the pairs that the matcher finds which an option, the plan or the views select."""
    by_option = (spec.name for spec in manager.specs("matchers", MatcherSpec) if spec.is_selected_by(plan.options))
    spec = manager.find("matchers", next(by_option, views.matcher), MatcherSpec)
    matcher: Matcher = spec.make()
    with blame_plugin(spec.title, spec.origin):
        matching = matcher.match(views.target, views.golden, replace(plan, matcher=views.matcher))
        if not isinstance(matching, Matching):
            raise TypeError(f"match must return a Matching, not {type(matching).__name__}")
    return matching


def _use_stacks(plan: Plan, run: Run) -> bool:
    """Load the call stacks of a run if the plan shows them; return False if it does not, or there are none."""
    path = plan.stack_path or run.stack_path
    if path is None or plan.stack is StackMode.HIDE or (plan.stack is StackMode.AUTO and not path.is_file()):
        return False
    run.use_stacks(path)
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
