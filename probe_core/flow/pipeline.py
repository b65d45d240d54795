"""The comparison of one record file with another, from opening to the written result.

Rows are created, judged and written op by op, in the order of the target's dump. If the workers of a pool measure
them, this process still writes them, in the same order and to the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from probe_core.flow.comparison import RunComparison
from probe_core.flow.judging import JudgeChain
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.report import LineNumbers, Report, ReportDraft, RowCheck
from probe_core.plugins.blame import FailureListener, PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Answerer, Finder, Output, PairResult, ResultFiles, RowFinder, Witness
from probe_core.plugins.specs import AnswerSpec, FinderSpec, OutputSpec
from probe_core.progress import report_progress
from probe_core.store.layout import RunPair

BatchSource = Callable[[RunComparison], Iterator[RowBatch]]
"""A function that yields the measured batches of a comparison."""


def compare_pair(plan: Plan, manager: Manager, pair: RunPair, batch_source: BatchSource | None = None) -> PairResult:
    """Compare one record file with another without notifying plugins."""
    started = time.monotonic()
    with closing(RunComparison(plan, manager, pair.target, pair.golden)) as comparison:
        finder: Finder | None = manager.make_first("finders", FinderSpec)
        batches = comparison.batches(pair.rank) if batch_source is None else batch_source(comparison)
        report = _write(comparison, batches, manager, pair, finder)
    return PairResult(pair, replace(report, seconds=time.monotonic() - started), finder=finder)


class _PluginWitness(NamedTuple):
    """A witness whose errors name its plugin."""

    spec: AnswerSpec
    witness: Witness

    def write(self, batch: RowBatch) -> None:
        with blame_plugin(self.spec.title, self.spec.origin):
            if hasattr(self.witness, "write_batch"):
                self.witness.write_batch(batch)
                return
            for number, (_, rows) in enumerate(batch.all_rows()):
                self.witness.write(batch.op(number), rows)

    def close(self, *, interrupted: bool = False) -> Path:
        with blame_plugin(self.spec.title, self.spec.origin):
            return self.witness.close(interrupted=interrupted)

    def discard(self) -> None:
        with blame_plugin(self.spec.title, self.spec.origin):
            self.witness.discard()


def _create_witnesses(comparison: RunComparison, manager: Manager, pair: RunPair) -> list[_PluginWitness]:
    """Return the witnesses of the answers that the plan requests."""
    witnesses: list[_PluginWitness] = []
    try:
        for name in comparison.opened.plan.answers:
            spec = manager.find("answers", name, AnswerSpec)
            answerer: Answerer = spec.make()
            with blame_plugin(spec.title, spec.origin):
                witness = answerer.witness(comparison.opened, pair)
            witnesses += [] if witness is None else [_PluginWitness(spec, witness)]
    except BaseException:
        _discard(witnesses)
        raise
    return witnesses


def add_rows(finder: Finder, batch: RowBatch, lines: LineNumbers) -> None:
    """Add the rows of a batch, whose positions in the result files are ``lines``, to a finder."""
    if hasattr(finder, "add_batch"):
        finder.add_batch(batch, lines)
        return
    row_finder = cast(RowFinder, finder)
    for number, (_, rows) in enumerate(batch.all_rows()):
        row_finder.add(batch.op(number), rows, lines.select(batch.lines(number)))


def _add_answer(draft: ReportDraft, finder: Finder | None, comparison: RunComparison, pair: RunPair) -> None:
    """Add the verdict of the finder of suspects to the draft, or a problem if its plugin fails."""
    if finder is None:
        return
    opened = comparison.opened
    compare = partial(compare_further, opened.manager, opened.note_failure)
    for spec in opened.manager.specs("finders", FinderSpec)[:1]:
        try:
            with blame_plugin(spec.title, spec.origin):
                draft.answer = finder.answer(draft, opened, pair, compare)
        except PluginError as error:
            draft.problems.append(f"{error.what} There is no verdict. {error.fix}")
    comparison.notes += comparison.runs.hints.of_suspects(finder.found)


def compare_further(
    manager: Manager, note_failure: FailureListener, plan: Plan, target: Path, golden: Path, rank: int
) -> Iterator[RowBatch]:
    """Yield the judged batches of a further comparison, which a verdict needs."""
    with closing(RunComparison(plan, manager, target, golden)) as comparison:
        judge_chain = JudgeChain(manager, note_failure)
        for batch in comparison.batches(rank):
            judge_chain.apply(batch)
            yield batch


def _discard(writers: Sequence[ResultFiles | _PluginWitness]) -> None:
    for writer in writers:
        writer.discard()


def _write(
    comparison: RunComparison, batches: Iterator[RowBatch], manager: Manager, pair: RunPair, finder: Finder | None
) -> Report:
    opened, row_count = comparison.opened, comparison.runs.row_count
    output: Output | None = manager.make_first("outputs", OutputSpec)
    draft = ReportDraft(
        pair.name,
        opened.target.path,
        opened.golden.path,
        opened.mode,
        row_count,
        RowCheck() if output is None else output.create_check(opened),
        notes=comparison.notes,
        regions=comparison.runs.regions,
    )
    result_files = ResultFiles() if output is None else output.open_files(opened, pair, draft)
    if finder is None:
        reason = str(manager.create_missing_error("finders", "suspects")).replace("\n", " ")
        draft.notes.append(f"there is no verdict. {reason}")
    witnesses: list[_PluginWitness] = []
    try:
        witnesses = _create_witnesses(comparison, manager, pair)
        judge_chain = JudgeChain(manager, opened.note_failure)
        try:
            for batch in batches:
                judge_chain.apply(batch)
                result_files.write(batch)
                comparison.notes += comparison.runs.hints.of(batch)
                if finder is not None:
                    add_rows(finder, batch, LineNumbers(result_files.line, draft.counts.rows))
                draft.add(batch)
                for witness in witnesses:
                    witness.write(batch)
                report_progress("comparing", draft.counts.rows, row_count)
            draft.conclude()
        except KeyboardInterrupt:
            draft.interrupted = True
        is_partial = draft.interrupted
        _add_answer(draft, finder, comparison, pair)
        files = result_files.close(draft.answer if opened.plan.answer else None, interrupted=is_partial)
    except BaseException:
        _discard([result_files, *witnesses])
        raise
    files += [witness.close(interrupted=is_partial) for witness in witnesses]
    files += comparison.runs.write_pairs(pair)
    report = draft.build(
        suspects=tuple(finder.found) if finder is not None else (),
        first_failure=finder.first_failure if finder is not None else None,
        unreadable=tuple(comparison.unreadable),
        unreadable_count=comparison.unreadable_count,
        files=tuple(files),
        faults=tuple(result_files.faults),
    )
    return result_files.complete(report, comparison.runs.hints.explaining)
