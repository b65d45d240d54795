"""A comparison of two runs, whose rows are measured on demand."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from probe_core.flow.evaluation import RowEvaluator
from probe_core.flow.matched import MatchedRuns
from probe_core.flow.opening import open_runs
from probe_core.flow.prefetching import group_pairs, measure_ahead
from probe_core.flow.viewing import check_views, select_records
from probe_core.model.batches import RowBatch
from probe_core.model.measure import Array, OpenPair, PairGroup
from probe_core.model.plan import Plan
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import OpenComparison, Output
from probe_core.plugins.specs import (
    AnswerSpec,
    FinderSpec,
    MatcherSpec,
    MetricSpec,
    OutputSpec,
    PolicySpec,
    ReporterSpec,
    import_address,
)

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
    """A comparison of two runs with the metrics and policies for the kind of data in them.

    Attributes:
        runs: The runs and their rows.
        opened: The comparison as plugins see it.
        notes: Sentences for the summary.
        unreadable: The first few tensor files that could not be read.
        unreadable_count: The number of tensor files that could not be read.
    """

    def __init__(self, plan: Plan, manager: Manager, target: Path, golden: Path) -> None:
        self.unreadable: list[str] = []
        self.unreadable_count = 0
        target_run, golden_run, self.notes = select_records(manager, *open_runs(plan, manager, target, golden))
        for side, run in (("target", target_run), ("golden", golden_run)):
            if run.header.unfinished:
                self.notes.append(
                    f"the {side} is unfinished, and calls after its last record are missing: {run.header.unfinished}"
                )
        mode, is_debug = target_run.mode, target_run.is_debug
        answers = () if is_debug else plan.answers  # answers concern calls, not saved variables
        answer_specs = [manager.find("answers", name, AnswerSpec) for name in answers]
        finder_specs = manager.specs("finders", FinderSpec)[:1]
        output: Output | None = manager.make_first("outputs", OutputSpec)
        output_metrics = () if output is None else output.find_metrics(plan, manager, mode)
        note_failure = partial(
            _note_failure, self.notes
        )  # not a bound method, which would keep a failed comparison alive
        self._tools = RowEvaluator(plan, manager, mode, [*answer_specs, *finder_specs], output_metrics, note_failure)
        self.runs = MatchedRuns(plan, manager, target_run, golden_run)
        self.notes += self.runs.notes
        self.opened = OpenComparison(
            plan, manager, self.runs.target, self.runs.golden, mode, is_debug, self.runs.has_stacks,
            self._tools.shown, self._tools.added_columns, self._tools.label_policies, self._tools.metric_uses,
            note_failure,
        )  # fmt: skip

    def batches(self, rank: int = 0, start: int = 0, stop: int | None = None) -> Iterator[RowBatch]:
        """Yield the measured rows of the target's ops from ``start`` up to ``stop``, in table order."""
        batches = self.runs.yield_batches(rank, start, stop)
        for batch in self._measure_by_pair(batches) if self._tools.opens_pairs else batches:
            if not self._tools.opens_pairs:
                self._tools.begin(batch)
            self._tools.end(batch)
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
        opened, names = self.opened, self._tools.names
        for batch in batches:
            pairs = (
                OpenPair(pair, opened.mode, opened.target, opened.golden, names) for pair in batch.pairs(0, len(batch))
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
                self.add_unreadable([str(pair.unreadable)], 1)


def _note_failure(notes: list[str], error: PluginError, consequence: str) -> None:
    """Note once that a plugin failed."""
    note = f"{error.what} {consequence} {error.fix}"
    if note not in notes:
        notes.append(note)
