"""Two opened runs whose calls are paired, and their rows before these are measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path

from probe_core.errors import UserError, find_nearest_names, format_count, format_list
from probe_core.flow.viewing import create_views
from probe_core.matching.matching import Matching, Region
from probe_core.matching.row_order import ROW_COST, RowOrder
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
        has_stacks: True if the table shows the call stacks of the target.
    """

    def __init__(
        self, runs: tuple[Run, Run], views: Views, matching: Matching, miscounted_apis: Set[str], *, has_stacks: bool
    ) -> None:
        self.target, self.golden = target, golden = runs
        self.hints, self.notes = views.hints, [*views.notes]
        self.regions = [_describe_region(region, target, golden) for region in matching.regions]
        self.has_stacks = has_stacks
        self._matching, self._write_pairs = matching, views.write_pairs
        self._order = RowOrder(matching, target, golden)
        self.row_count = self._order.row_count
        self._costs = self._order.compute_costs() if target.mode is Mode.TENSOR else None
        self._miscounted_apis = miscounted_apis

    @classmethod
    def match(cls, plan: Plan, manager: Manager, target: Run, golden: Run) -> MatchedRuns:
        """Pair the calls of two opened runs, and load the call stacks if the plan shows them.

        Raises:
            UserError: No call has a partner, or the call stacks cannot be read.
        """
        views = create_views(plan, manager, target, golden)
        target, golden = views.compared or (target, golden)
        matching = _match(plan, manager, views)
        advice = _list_advice(manager)
        if not matching.matched_count:
            raise _create_no_match_error(target, golden, views.notes, advice)
        miscounted: Mapping[str, tuple[int, int]] = {}
        if views.matcher == "exact" and not target.is_debug:  # calls of one name are paired by their numbers
            miscounted = _find_miscounted_apis(target, golden)
        stack_path = None if target.is_debug else _find_stack_path(plan, target)
        if stack_path is not None:
            target.use_stacks(stack_path)
        runs = cls((target, golden), views, matching, miscounted.keys(), has_stacks=stack_path is not None)
        if miscounted:
            runs.notes.append(_describe_miscounted(miscounted) + advice)
        return runs

    def iterate_batches(self, rank: int = 0, start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the rows of the target's ops from ``start`` up to ``stop``, in table order."""
        limit = MAX_BATCH_ROWS if self._costs is None else MAX_BATCH_COST
        stop = len(self._order.ops) if stop is None else stop
        spans = self._order.iterate_spans(start, stop, limit, self._costs)
        return (self.create_batch(first, last, rank) for first, last in spans)

    def create_batch(self, start: int, stop: int, rank: int = 0) -> RowBatch:
        """Return the rows of the target's ops from ``start`` up to ``stop`` as one batch."""
        return self._order.create_batch(start, stop, partial(self._create_op, rank=rank), self._find_stack)

    def split_ops(self, count: int) -> list[tuple[int, int]]:
        """Split the target's ops into about ``count`` ranges of equal cost, as (start, stop)."""
        costs = self._order.compute_costs()
        return [*self._order.iterate_spans(0, len(self._order.ops), costs.sum() / max(1, count), costs)]

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
        is_miscounted = bool(self._miscounted_apis) and drop_count(op) in self._miscounted_apis
        return Op(op, ancestors, is_miscounted, rank, self.target.mode is Mode.TENSOR)

    def _find_stack(self, op: str) -> tuple[str, ...] | None:
        return None if is_gradient(op) else self.target.stack_of(op)


def _match(plan: Plan, manager: Manager, views: Views) -> Matching:
    """Match the runs with the matcher that an option of a plugin selects, or with that of the views."""
    by_option = (spec.name for spec in manager.specs("matchers", MatcherSpec) if spec.is_selected_by(plan.options))
    spec = manager.find("matchers", next(by_option, views.matcher), MatcherSpec)
    matcher: Matcher = spec.make()
    with blame_plugin(spec.title, spec.origin):
        matching = matcher.match(views.target, views.golden, replace(plan, matcher=views.matcher))
        if not isinstance(matching, Matching):
            raise TypeError(f"match must return a Matching, not {type(matching).__name__}")
    return matching


def _list_advice(manager: Manager) -> str:
    """Return the sentence on the other ways of pairing that plugins provide; empty if there are none."""
    advice = [spec.advice for spec in manager.specs("matchers", MatcherSpec) if spec.advice]
    return f" Other ways of pairing: {', '.join(advice)}." if advice else ""


def _find_miscounted_apis(target: Run, golden: Run) -> dict[str, tuple[int, int]]:
    """Return the counts in both runs of the APIs that one run calls more often, in the order of the target."""
    counts, golden_counts = (
        Counter(drop_count(name) for name in run.names() if not is_module(name)) for run in (target, golden)
    )
    return {
        name: (count, golden_counts[name]) for name, count in counts.items() if golden_counts[name] not in (0, count)
    }


def _describe_miscounted(counts: Mapping[str, tuple[int, int]]) -> str:
    """Return the note on APIs that one run calls more often."""
    name, (count, golden_count) = next(iter(counts.items()))
    return (
        f"one run calls {format_count(len(counts), 'API')} more often, such as {name} ({count:,} against "
        f"{golden_count:,} calls); their rows may be paired incorrectly and do not affect the verdict."
    )


def _find_stack_path(plan: Plan, run: Run) -> Path | None:
    """Return the file of the call stacks that the table shows; None if it shows none."""
    path = plan.stack_path or run.stack_path
    if path is None or plan.stack is StackMode.HIDE or (plan.stack is StackMode.AUTO and not path.is_file()):
        return None
    return path


def _describe_region(region: Region, target: Run, golden: Run) -> str:
    """Return the description of a region without partners for the summary."""
    target_names, golden_names = (
        format_list([run.names()[index] for index in side], MAX_LISTED_REGION_CALLS)
        for run, side in ((target, region.target), (golden, region.golden))
    )
    if target_names and golden_names:
        return f"changed: {target_names} for {golden_names}"
    return f"inserted: {target_names}" if target_names else f"missing: {golden_names}"


def _create_no_match_error(target: Run, golden: Run, notes: Sequence[str], advice: str) -> UserError:
    """Return the error for two runs without any pair, with the nearest names."""
    what = "No row of the target has a partner in the golden."
    if notes and target.header.framework != golden.header.framework:
        first, *more = (f"{note[0].upper()}{note[1:].rstrip('.')}." for note in notes)
        return UserError(what, first, more)
    golden_names = golden.names()
    closest = [(key, find_nearest_names(key, golden_names, 1)) for key in target.names()[:5]]
    lines = [
        f"{key}  ({f'nearest in the golden: {close[0]}' if close else 'no similar name in the golden'})"
        for key, close in closest
    ]
    lines += [f"the golden begins with {name}" for name in golden_names[:1]]
    return UserError(
        what,
        f"Check that both runs are of the same model and level.{advice} The target begins with:",
        lines,
    )
