"""The comparison of one record file with another, from opening to the written result.

Rows are created, judged and written op by op, in the order of the target's dump. If the workers of a pool measure
them, this process still writes them, in the same order and to the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from probe_core.flow.comparison import RunComparison
from probe_core.flow.judging import judge_batches
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.report import LineNumbers, Report, ReportDraft, RowCheck
from probe_core.plugins.blame import FailureListener, PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import (
    Answerer,
    BatchFinder,
    BatchWitness,
    Finder,
    Output,
    PairResult,
    ResultFiles,
    RowFinder,
    Witness,
)
from probe_core.plugins.specs import AnswerSpec, FinderSpec, OutputSpec
from probe_core.progress import report_progress
from probe_core.store.layout import RunPair

BatchSource = Callable[[RunComparison], Iterator[RowBatch]]
"""A function that yields the measured batches of a comparison."""


def compare_pair(plan: Plan, manager: Manager, pair: RunPair, batch_source: BatchSource | None = None) -> PairResult:
    """Compare one record file with another, and write the result files.

    Without a ``batch_source``, the rows are measured in this process. Plugins are not notified.
    """
    started = time.monotonic()
    finder: Finder | None = manager.make_first("finders", FinderSpec)
    with closing(RunComparison.open(plan, manager, pair.target, pair.golden)) as comparison:
        batches = comparison.batches(pair.rank) if batch_source is None else batch_source(comparison)
        report = compare_opened(comparison, batches, pair, finder)
    return PairResult(pair, replace(report, seconds=time.monotonic() - started), finder=finder)


def compare_further(
    manager: Manager, note_failure: FailureListener, plan: Plan, target: Path, golden: Path, rank: int
) -> Iterator[RowBatch]:
    """Yield the judged batches of a further comparison, which a verdict needs."""
    with closing(RunComparison.open(plan, manager, target, golden)) as comparison:
        yield from judge_batches(comparison.batches(rank), manager, note_failure)


def compare_opened(
    comparison: RunComparison, batches: Iterator[RowBatch], pair: RunPair, finder: Finder | None
) -> Report:
    """Judge the measured batches of a comparison, write its files, and return the report with the verdict."""
    opened = comparison.opened
    output: Output | None = opened.manager.make_first("outputs", OutputSpec)
    draft = _create_draft(comparison, pair, RowCheck() if output is None else output.create_check(opened))
    result_files = ResultFiles() if output is None else output.open_files(opened, pair, draft)
    if finder is None:
        reason = str(opened.manager.create_missing_error("finders", "suspects")).replace("\n", " ")
        draft.notes.append(f"there is no verdict. {reason}")
    judged_batches = judge_batches(batches, opened.manager, opened.note_failure)
    files = _write_files(judged_batches, comparison, pair, draft, result_files, finder)
    report = draft.build(
        suspects=tuple(finder.found) if finder is not None else (),
        first_failure=finder.first_failure if finder is not None else None,
        unreadable=tuple(comparison.unreadable),
        unreadable_count=comparison.unreadable_count,
        files=tuple(files),
        faults=tuple(result_files.faults),
    )
    return result_files.complete(report, comparison.runs.hints.explaining)


def _write_files(
    batches: Iterable[RowBatch],
    comparison: RunComparison,
    pair: RunPair,
    draft: ReportDraft,
    result_files: ResultFiles,
    finder: Finder | None,
) -> list[Path]:
    """Write the judged batches and the verdict, and return the files; an error discards all files."""
    with ExitStack() as discarding:
        discarding.callback(result_files.discard)
        witnesses = _create_witnesses(comparison, pair)
        for witness in witnesses:
            discarding.callback(witness.discard)
        try:
            _process_batches(batches, comparison, draft, result_files, finder, witnesses)
        except KeyboardInterrupt:
            draft.interrupted = True
        is_partial = draft.interrupted  # read before the finder, which may be interrupted as well
        if finder is not None:
            _add_answer(draft, finder, comparison, pair)
        answer = draft.answer if comparison.opened.plan.answer else None
        files = result_files.close(answer, interrupted=is_partial)
        discarding.pop_all()
    files += [witness.close(interrupted=is_partial) for witness in witnesses]
    return [*files, *comparison.runs.write_pairs(pair)]


def _create_draft(comparison: RunComparison, pair: RunPair, check: RowCheck) -> ReportDraft:
    """Return the draft of the report; both share the list of notes."""
    opened, runs = comparison.opened, comparison.runs
    return ReportDraft(
        pair.name,
        opened.target.path,
        opened.golden.path,
        opened.mode,
        runs.row_count,
        check,
        notes=comparison.notes,
        regions=runs.regions,
    )


def _process_batches(
    batches: Iterable[RowBatch],
    comparison: RunComparison,
    draft: ReportDraft,
    result_files: ResultFiles,
    finder: Finder | None,
    witnesses: Sequence[_PluginWitness],
) -> None:
    """Write the judged batches, and pass them to all that draw conclusions from them."""
    for batch in batches:
        result_files.write(batch)
        draft.notes += comparison.runs.hints.of(batch)
        if finder is not None:
            add_rows(finder, batch, LineNumbers(result_files.line, draft.counts.rows))
        draft.add(batch)
        for witness in witnesses:
            witness.write(batch)
        report_progress("comparing", draft.counts.rows, draft.row_count)
    draft.conclude()


def add_rows(finder: Finder, batch: RowBatch, lines: LineNumbers) -> None:
    """Add the rows of a batch, whose positions in the result files are ``lines``, to a finder."""
    if isinstance(finder, BatchFinder):
        finder.add_batch(batch, lines)
        return
    row_finder = cast(RowFinder, finder)
    for number, (_, rows) in enumerate(batch.all_rows()):
        row_finder.add(batch.op(number), rows, lines.select(batch.lines(number)))


def _add_answer(draft: ReportDraft, finder: Finder, comparison: RunComparison, pair: RunPair) -> None:
    """Add the verdict of the finder, or a problem if its plugin fails, and explanations of the suspects."""
    opened = comparison.opened
    spec = opened.manager.specs("finders", FinderSpec)[0]
    compare = partial(compare_further, opened.manager, opened.note_failure)
    try:
        with blame_plugin(spec.title, spec.origin):
            draft.answer = finder.answer(draft, opened, pair, compare)
    except PluginError as error:
        draft.problems.append(f"{error.what} There is no verdict. {error.fix}")
    draft.notes += comparison.runs.hints.of_suspects(finder.found)


class _PluginWitness(NamedTuple):
    """A witness whose errors name its plugin."""

    spec: AnswerSpec
    witness: Witness | BatchWitness

    def write(self, batch: RowBatch) -> None:
        with blame_plugin(self.spec.title, self.spec.origin):
            if isinstance(self.witness, BatchWitness):
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


def _create_witnesses(comparison: RunComparison, pair: RunPair) -> list[_PluginWitness]:
    """Return the witnesses of the answers that the plan requests."""
    opened = comparison.opened
    with ExitStack() as discarding:
        witnesses: list[_PluginWitness] = []
        for name in opened.plan.answers:
            spec = opened.manager.find("answers", name, AnswerSpec)
            answerer: Answerer = spec.make()
            with blame_plugin(spec.title, spec.origin):
                witness = answerer.witness(opened, pair)
            if witness is not None:
                witnesses.append(_PluginWitness(spec, witness))
                discarding.callback(witnesses[-1].discard)
        discarding.pop_all()
    return witnesses
