"""A comparison of two runs, whose rows are measured on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from probe_core.flow.evaluation import RowEvaluator, select_contributions
from probe_core.flow.matched import MatchedRuns
from probe_core.flow.opening import open_runs
from probe_core.flow.prefetching import group_pairs, measure_ahead
from probe_core.flow.viewing import check_views, select_records
from probe_core.model.batches import RowBatch
from probe_core.model.columns import Array
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.plan import Plan
from probe_core.model.report import FailureNote
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import OpenComparison
from probe_core.plugins.specs import MatcherSpec, MetricSpec, PolicySpec, ReporterSpec, import_address

MAX_LISTED_UNREADABLE = 5
"""Number of unreadable files that the summary names."""


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
                    import_address(chosen.check)()
    check_views(plan, manager)


class RunComparison:
    """A comparison of two opened runs with the metrics and policies for the kind of data in them.

    Attributes:
        runs: The runs and their rows.
        opened: The comparison as plugins see it.
        notes: Sentences for the summary.
        unreadable: The first few tensor files that could not be read.
        unreadable_count: The number of tensor files that could not be read.
    """

    def __init__(self, runs: MatchedRuns, evaluator: RowEvaluator, opened: OpenComparison, notes: list[str]) -> None:
        self.runs, self._evaluator, self.opened, self.notes = runs, evaluator, opened, notes
        self.unreadable: list[str] = []
        self.unreadable_count = 0

    @classmethod
    def open(cls, plan: Plan, manager: Manager, target: Path, golden: Path) -> RunComparison:
        """Open two record files, choose the metrics for the data in them, and pair their records.

        Raises:
            UserError: The runs cannot be read or compared, or the plan does not suit them.
        """
        with ExitStack() as closing_stack:  # closes both runs if they cannot be compared
            runs = open_runs(plan, manager, target, golden)
            for run in runs:
                closing_stack.callback(run.close)
            target_run, golden_run, notes = select_records(manager, *runs)
            notes += [
                f"the {side} is unfinished, and calls after its last record are missing: {run.header.unfinished}"
                for side, run in (("target", target_run), ("golden", golden_run))
                if run.header.unfinished
            ]
            mode, is_debug = target_run.mode, target_run.is_debug
            # not a bound method, because a reference cycle would keep a failed comparison alive
            note_failure = partial(_note_failure, notes)
            selection = select_contributions(plan, manager, mode, is_debug=is_debug)
            evaluator = RowEvaluator(selection, manager, mode, note_failure)
            matched = MatchedRuns.match(plan, manager, target_run, golden_run)
            notes += matched.notes
            opened = OpenComparison(
                plan, manager, matched.target, matched.golden, mode, is_debug, matched.has_stacks,
                evaluator.table_columns, evaluator.added_columns, selection.label_policies, evaluator.metric_uses,
                note_failure,
            )  # fmt: skip
            closing_stack.pop_all()
        return cls(matched, evaluator, opened, notes)

    def batches(self, rank: int = 0, start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the measured rows of the target's ops from ``start`` up to ``stop``, in table order."""
        batches = self.runs.iterate_batches(rank, start, stop)
        for batch in self._measure_by_pair(batches) if self._evaluator.opens_pairs else batches:
            if not self._evaluator.opens_pairs:
                self._evaluator.begin(batch)
            self._evaluator.end(batch)
            yield batch

    def add_unreadable(self, lines: Sequence[str], count: int) -> None:
        """Add tensor files that a worker could not read."""
        self.unreadable_count += count
        self.unreadable += lines[: MAX_LISTED_UNREADABLE - len(self.unreadable)]

    def add_notes(self, lines: Sequence[str]) -> None:
        """Add the notes of a worker without repeating notes."""
        self.notes += [line for line in lines if line not in self.notes]

    def close(self) -> None:
        """Close both runs."""
        self.runs.close()

    def _open_pairs(self, batches: Iterable[RowBatch]) -> Iterator[tuple[tuple[RowBatch, int], PairGroup]]:
        """Yield all pairs as groups of open pairs, each with its batch and its first row."""
        opened, names = self.opened, self._evaluator.metric_names
        for batch in batches:
            pairs = (
                OpenPair(pair, opened.mode, opened.target, opened.golden, names) for pair in batch.pairs(0, len(batch))
            )
            first = 0
            for group in group_pairs(pairs):
                yield (batch, first), group
                first += len(group)

    def _measure_by_pair(self, batches: Iterable[RowBatch]) -> Iterator[RowBatch]:
        """Yield the batches after their open pairs are measured and judged."""
        measured_groups = measure_ahead(self._open_pairs(batches), self._evaluator.group_functions)
        for batch, groups in groupby(measured_groups, key=lambda item: item[0][0]):
            self._evaluator.begin(batch)
            for (_, first), group in groups:
                self._measure(batch, np.arange(first, first + len(group)), group)
            yield batch

    def _measure(self, batch: RowBatch, lines: Array, group: PairGroup) -> None:
        """Measure a group, and measure rows whose mapped files changed meanwhile again, as unreadable."""
        try:
            self._evaluator.measure_group(batch, lines, group)
            memories = {memory for pair in group for memory in pair.mappings}
            checked = {memory: None if memory is None else memory.find_problem() for memory in memories}
            problems = {memory: problem for memory, problem in checked.items() if problem is not None}
            changed = [index for index, pair in enumerate(group) if pair.invalidate(problems)]
            if changed:
                self._evaluator.measure_group(batch, lines[changed], PairGroup([group[index] for index in changed]))
        finally:
            for pair in group:
                pair.close()
        for pair in group:
            if pair.unreadable is not None and not pair.unreadable.missing:
                self.add_unreadable([str(pair.unreadable)], 1)


def _note_failure(notes: list[str], error: PluginError, consequence: str) -> None:
    """Note once that a plugin failed."""
    note = FailureNote(f"{error.what} {consequence} {error.fix}", error.subject, error.fix)
    if note not in notes:
        notes.append(note)
