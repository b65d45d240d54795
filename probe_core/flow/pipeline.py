"""The comparison of one record file with another, from opening to the written result.

Rows stream: they are made, judged and written op by op in the order of the target's dump. The workers of a
pool may measure them; they are written here, in the same order and to the same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from probe_core.flow.comparison import RunComparison
from probe_core.flow.judging import JudgeChain
from probe_core.flow.writing import OutputFiles
from probe_core.model import Advice
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.report import Finder, LineNumbers, NoFinder, Report
from probe_core.model.watched import MeasurementCheck
from probe_core.plugins.blame import PluginError, blame_plugin
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Answerer, Witness
from probe_core.plugins.specs import AnswerSpec, FinderSpec
from probe_core.progress import report_progress
from probe_core.store.layout import RunPair

BatchSource = Callable[[RunComparison], Iterator[RowBatch]]
"""A function that yields the measured batches of a comparison."""


def compare_pair(plan: Plan, manager: Manager, pair: RunPair, batch_source: BatchSource | None = None) -> Report:
    """Compare one record file with another, and notify the plugins before and after.

    Args:
        plan: The options of the comparison.
        manager: The plugins.
        pair: The two record files.
        batch_source: The source of the rows; None to measure them in this process.
    """
    manager.notify("probe_run_started", target=str(pair.target), golden=str(pair.golden))
    report = compare_quietly(plan, manager, pair, batch_source)
    manager.notify("probe_run_finished", report=report)
    return report


def compare_quietly(plan: Plan, manager: Manager, pair: RunPair, batch_source: BatchSource | None = None) -> Report:
    """Compare one record file with another without notifying plugins."""
    started = time.monotonic()
    comparison = RunComparison(plan, manager, pair.target, pair.golden)
    try:
        batches = comparison.batches(pair.rank) if batch_source is None else batch_source(comparison)
        report = _write(comparison, batches, manager, pair)
    finally:
        comparison.close()
    report.seconds = time.monotonic() - started
    return report


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
    """Return the witnesses of the answers that the plan asks for."""
    witnesses: list[_PluginWitness] = []
    try:
        for name in comparison.plan.answers:
            spec = manager.find("answers", name, AnswerSpec)
            answerer: Answerer = spec.make()
            with blame_plugin(spec.title, spec.origin):
                witness = answerer.witness(comparison, pair)
            witnesses += [] if witness is None else [_PluginWitness(spec, witness)]
    except BaseException:
        _discard(witnesses)
        raise
    return witnesses


def create_finder(manager: Manager) -> Finder:
    """Return the finder of suspects of the first plugin that has one; otherwise one that finds none."""
    specs = manager.specs("finders", FinderSpec)
    finder: Finder = specs[0].make() if specs else NoFinder()
    return finder


def _add_answer(report: Report, comparison: RunComparison, pair: RunPair) -> None:
    """Let the finder of suspects give the verdict; without one if its plugin fails."""
    for spec in comparison.finders:
        try:
            with blame_plugin(spec.title, spec.origin):
                report.answer = report.finder.answer(report, comparison, pair)
        except PluginError as error:
            report.problems.append(f"{error.what} There is no verdict. {error.fix}")
    comparison.explain(report.suspects)


def _discard(writers: Sequence[OutputFiles | _PluginWitness]) -> None:
    for writer in writers:
        writer.discard()


def _write(comparison: RunComparison, batches: Iterator[RowBatch], manager: Manager, pair: RunPair) -> Report:
    plan = comparison.plan
    report = Report(
        pair.name,
        comparison.target.path,
        comparison.golden.path,
        comparison.mode,
        comparison.row_count,
        notes=comparison.notes,
        regions=comparison.regions,
        finder=create_finder(manager),
        watch=MeasurementCheck(comparison.mode, comparison.watched_metrics()),
        opened=comparison,
    )
    output = OutputFiles(plan, manager, pair, comparison.table, report, comparison.is_debug)
    if not manager.names("finders"):
        reason = str(manager.create_missing_error("finders", "suspects")).replace("\n", " ")
        report.notes.append(f"there is no verdict. {reason}")
    witnesses: list[_PluginWitness] = []
    done = 0
    try:
        witnesses = _create_witnesses(comparison, manager, pair)
        judge_chain = JudgeChain(manager, comparison.highlights, comparison.blame)
        try:
            for batch in batches:
                judge_chain.apply(batch)
                output.write(batch)
                comparison.look(batch)
                report.add(batch, LineNumbers(output.line, done))
                for witness in witnesses:
                    witness.write(batch)
                done += len(batch)
                report_progress("comparing", done, comparison.row_count)
            report.conclude()
        except KeyboardInterrupt:
            report.interrupted = True
        report.unreadable, report.unreadable_count = comparison.unreadable, comparison.unreadable_count
        is_partial = report.interrupted
        _add_answer(report, comparison, pair)
        report.files = output.close(report.answer if plan.answer else None, interrupted=is_partial)
        report.faults, report.opened = output.faults, None
    except BaseException:
        _discard([output, *witnesses])
        raise
    report.files += [witness.close(interrupted=is_partial) for witness in witnesses]
    report.files += comparison.write_pairs(pair)
    if plan.advise and not report.interrupted:
        report.advice = next(iter(manager.notify("probe_advise", returns=Advice, report=report)), None)
        if report.advice:
            report.advice = comparison.advised(report.advice)
            report.files.append(output.write_advice(report.advice))
    return report
