"""The finder of suspects: the calls where two runs diverge first, from the facts about all calls of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from probe_core.model import Kind, Level, Row, Side, Suspect
from probe_core.model.answers import Answer, Finding, Outcome
from probe_core.model.batches import RowBatch
from probe_core.model.dtypes import get_dtype_kind
from probe_core.model.report import LineNumbers, Report, ReportDraft
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Comparer, OpenComparison
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.causes.compared_runs import ComparedRuns
from probe_diagnosis.answer.causes.detector_findings import run_detectors
from probe_diagnosis.answer.causes.moved_calls import find_moved_call
from probe_diagnosis.answer.causes.precision_cause import find_precision
from probe_diagnosis.answer.causes.rewritten_blocks import withdraw_rewritten_blocks
from probe_diagnosis.answer.causes.unlike_gradients import attribute_unlike_gradients
from probe_diagnosis.answer.references.baseline import measure_baseline, raise_limits
from probe_diagnosis.answer.references.further_passes import (
    compare_aligned,
    compare_without_process_start,
    is_displaced,
    is_out_of_step,
)
from probe_diagnosis.answer.references.reference import ReferenceRun, consider_reference
from probe_diagnosis.answer.references.same_files import state_same_files
from probe_diagnosis.answer.verdict.rank_diagnosis import RankDiagnosis
from probe_diagnosis.difference.nodes import RankHistory
from probe_diagnosis.frames import find_own_frame
from probe_diagnosis.precision.signature import raise_noise
from probe_diagnosis.resume.findings import create_resume_findings
from probe_diagnosis.timeline.compared_calls import ValueComparison
from probe_diagnosis.timeline.evidence import format_evidence_texts
from probe_diagnosis.timeline.rank_facts import RankFacts
from probe_diagnosis.timeline.value_table import ValueTable

MAX_SUSPECTS = 5
"""Largest number of suspects of a rank."""


class SuspectFinder:
    """Finder of the calls where two runs diverge first, and of the verdict on them.

    Attributes:
        first_failure: The first row that fails by the rule of its table, unless rounding may explain it.
        facts: The facts about all ops so far.
        history: The rounding that earlier steps carry into this one; None if the verdict does not consider them.
        reference_directory: The directory of the record that the reference has of this rank; None without one.
    """

    def __init__(self) -> None:
        self.first_failure: Suspect | None = None
        self.facts = RankFacts()
        self.history: RankHistory | None = None
        self.reference_directory: Path | None = None
        self._found: list[Suspect] = []
        self._tabulated = self.facts

    @property
    def found(self) -> list[Suspect]:
        """The causes, the most important one first. Empty until ``answer`` was called."""
        return self._found

    def add_batch(self, batch: RowBatch, lines: LineNumbers) -> None:
        """Add the rows of a batch after all judges; ``lines`` are their positions in the result file."""
        table = self.facts.add(batch, lines)
        if self.first_failure is None:
            failed = batch.verdicts.map_verdicts(lambda verdict: verdict.failed)
            suspects = (_find_failure(batch, number, table) for number in batch.find_ops(failed))
            self.first_failure = next(filter(None, suspects), None)

    def answer(self, draft: ReportDraft, opened: OpenComparison, pair: RunPair, compare: Comparer) -> Answer:
        """Return the verdict on the two runs, after the last row.

        Calls that are paired by numbers which do not line up are compared a second time, aligned.

        Args:
            draft: The counts and notes of the comparison.
            opened: The comparison.
            pair: The step and the rank.
            compare: Function that makes a further comparison.
        """
        if draft.interrupted:
            self.facts.ops.drop_incomplete()
        try:
            if not draft.interrupted and _is_resumed_step(opened, pair):
                self.facts = compare_without_process_start(opened, pair.rank, compare) or self.facts
            if not draft.interrupted and (self.facts.is_shifted or is_out_of_step(opened)):
                self._align(opened, pair, compare)
            answer, causes = self._conclude(draft, opened, pair, compare)
            is_by_number = self.facts is self._tabulated and not draft.interrupted
            suspect_ops = [cause.op for cause in causes] or [note.op for note in answer.notes if note.op]
            may_be_displaced = is_by_number and suspect_ops and is_displaced(opened, suspect_ops[0])
            if may_be_displaced and self._align(opened, pair, compare):
                answer, causes = self._conclude(draft, opened, pair, compare, is_displaced=True)
        except KeyboardInterrupt:
            draft.interrupted = True
            answer, causes = self._conclude(draft, opened, pair, compare)
        answer = self._complete(answer, causes, pair)
        self._tabulated = self.facts
        if pair.name:
            self.facts.ops.table.settle_positions()  # the files are closed before all ranks are searched
        return answer

    def _detect(self, manager: Manager, runs: ComparedRuns, pair: RunPair, problems: list[str]) -> list[Finding]:
        """Return what the detectors of plugins find; a detector that fails is added to ``problems``, once."""
        failures: list[str] = []
        findings = run_detectors(manager, self.facts, runs, pair.part, failures)
        problems += [failure for failure in failures if failure not in problems]
        return findings

    def answer_after(
        self, history: RankHistory, manager: Manager, report: Report, runs: ComparedRuns, pair: RunPair
    ) -> Report:
        """Return the report on this step with a verdict that considers earlier steps.

        Args:
            history: The rounding that earlier steps carry into this one.
            manager: The plugins.
            report: The counts, and the verdict on the step alone.
            runs: Both runs.
            pair: The step and the rank.
        """
        alone, problems = report.answer, [*report.problems]
        assert alone is not None
        self.history = history
        diagnosis = RankDiagnosis(
            self.facts, runs, step=pair.part, is_interrupted=report.interrupted, is_multi_rank=bool(pair.label),
            history=history,
            detector_findings=[] if report.interrupted else self._detect(manager, runs, pair, problems),
            reference_directory=self.reference_directory, precision=find_precision(alone.causes),
        )  # fmt: skip
        answer, causes = diagnosis.build_answer(alone.baseline or None, alone.reference or None)
        lines = {(cause.op, cause.row): cause.line for cause in alone.causes}  # of the table, not of the facts
        causes = [
            replace(candidate, line=candidate.line or lines.get((candidate.op, candidate.row), ""))
            for candidate in causes
        ]
        answer = self._complete(answer, causes, pair)
        return replace(report, answer=answer, suspects=tuple(self._found), problems=tuple(problems))

    def _complete(self, answer: Answer, causes: Sequence[Finding], pair: RunPair) -> Answer:
        """Return a verdict whose causes have their lines in the table; keep them as suspects."""
        causes = [self._add_line(cause) for cause in causes]
        self._found = [_create_suspect(cause) for cause in causes[:MAX_SUSPECTS]]
        withdrawn = tuple(map(self._add_line, answer.withdrawn))
        return state_same_files(replace(answer, causes=tuple(causes), withdrawn=withdrawn), [pair])

    def _align(self, opened: OpenComparison, pair: RunPair, compare: Comparer) -> bool:
        """Replace the facts by those of an aligned comparison; return False if calls cannot be aligned."""
        aligned = compare_aligned(opened, pair.rank, compare)
        self.facts = aligned or self.facts
        return aligned is not None

    def _conclude(
        self,
        draft: ReportDraft,
        opened: OpenComparison,
        pair: RunPair,
        compare: Comparer,
        *,
        is_displaced: bool = False,
    ) -> tuple[Answer, list[Finding]]:
        """Return the verdict that the facts show, and its causes.

        Args:
            draft: The counts and notes of the comparison.
            opened: The comparison.
            pair: The step and the rank.
            compare: Function that makes a further comparison.
            is_displaced: True if the runs make calls in a different order.
        """
        baseline = None if draft.interrupted else measure_baseline(opened, pair, compare)
        if baseline is not None:
            raise_limits(self.facts, baseline)
        runs = ComparedRuns(opened.plan, opened.target, opened.golden)
        if not draft.interrupted:
            withdraw_rewritten_blocks(self.facts, runs)
            attribute_unlike_gradients(self.facts, runs)
        counts = baseline.plain() if baseline is not None else None
        detected = [] if draft.interrupted else self._detect(opened.manager, runs, pair, draft.problems)

        def conclude(
            reference: ReferenceRun | None = None, precision: Finding | None = None
        ) -> tuple[Answer, list[Finding]]:
            return RankDiagnosis(
                self.facts, runs, step=pair.part, is_interrupted=draft.interrupted, is_multi_rank=bool(pair.label),
                moved_call=find_moved_call(self.facts, runs) if is_displaced else None, detector_findings=detected,
                restore_findings=_find_not_restored(opened, pair), reference_directory=self.reference_directory,
                precision=precision,
            ).build_answer(counts, reference.plain() if reference is not None else None)  # fmt: skip

        concluded = conclude()
        precision = find_precision(concluded[1])
        if precision is not None:
            raise_noise(self.facts.ops, int(precision.evidence["bits"]))
            concluded = conclude(precision=precision)
        if opened.plan.options.get("reference") is None or draft.interrupted:
            return concluded
        is_needed = concluded[0].outcome is not Outcome.AGREE
        return conclude(self._consider_reference(opened, pair, compare, is_needed=is_needed), precision)

    def _consider_reference(
        self, opened: OpenComparison, pair: RunPair, compare: Comparer, *, is_needed: bool
    ) -> ReferenceRun | None:
        """Excuse differences to the golden that a more precise run explains; return None if it was not compared."""
        aligned = self.facts is not self._tabulated
        reference = consider_reference(self.facts, opened, pair, compare, needed=is_needed, aligned=aligned)
        if reference is not None and reference.record is not None:
            self.reference_directory = reference.record.parent
        return reference

    def _add_line(self, cause: Finding) -> Finding:
        """Return a cause with the line of its row in the table, which a further pass does not know.

        A cause that is a whole call has the line of the first row of that call.
        """
        calls = self._tabulated.ops
        number = calls.numbers_by_key.get(cause.op)
        if number is None or (cause.row and cause.line):
            return cause
        names = {calls.table.get_row_name(line, cause.op): line for line in calls.get_lines(number)}
        first = next(iter(names), "")
        line = names.get(cause.row or first)
        position = "" if line is None else calls.table.get_position(line)
        return replace(cause, line=position or cause.line, first_row="" if cause.row else first)

    def plain(self) -> Any:
        """Return the state as JSON data, for a comparison that is resumed."""
        return {
            "facts": self.facts.plain(),
            "found": [[*_serialize_suspect(suspect)] for suspect in self._found],
            "third": None if self.reference_directory is None else str(self.reference_directory),
        }

    def restore(self, plain: Any) -> None:
        """Restore the state that ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data has another structure.
        """
        self.facts = RankFacts.from_plain(plain["facts"])
        self._found = [_load_suspect(*fields) for fields in plain["found"]]
        self.reference_directory = None if plain["third"] is None else Path(plain["third"])


def _is_resumed_step(opened: OpenComparison, pair: RunPair) -> bool:
    """Return True for the first step of a resumed run."""
    steps = {directory.name for directory in list(pair.target.parents)[1:3]}  # a stage may be between step and rank
    resumed = opened.plan.options.get("resumed")
    return resumed is not None and f"step{resumed}" in steps


def _find_not_restored(opened: OpenComparison, pair: RunPair) -> list[Finding]:
    """Return the findings on what a resumed run did not restore, if this is its first step."""
    if not _is_resumed_step(opened, pair):
        return []
    return create_resume_findings(pair.target.parent, pair.golden.parent, pair.rank)


def _find_failure(batch: RowBatch, number: int, table: ValueTable) -> Suspect | None:
    """Return the first row of an op that fails by the rule of its table rather than by rounding."""
    op, rows, lines = batch.op(number), batch.rows(number), batch.lines(number)
    values = table.create_comparisons(lines.start, lines.stop, op.key)
    for row, value in zip(rows, values):
        if row.verdict.failed and not _follows_from_rounding(rows, values, row):
            module = op.ancestors[0] if op.ancestors else ""
            where = find_own_frame(next((sibling.stack for sibling in rows if sibling.stack), ()))
            return Suspect(
                op.key, row.pair.name, row.pair.side, value.position, row.verdict.level,
                "; ".join(format_evidence_texts(row.verdict)), module, where,
            )  # fmt: skip
    return None


def _create_suspect(cause: Finding) -> Suspect:
    row = cause.row or str(cause.evidence.get("value", cause.op))
    side = next((s for s in Side if f".{s.value}" in row), Side.OUTPUT)
    module = cause.modules[0] if cause.modules else ""
    return Suspect(cause.op, row, side, cause.line, Level.ERROR, cause.reason.detail, module, cause.where)


def _follows_from_rounding(rows: Sequence[Row], values: Sequence[ValueComparison], row: Row) -> bool:
    """Return True if a row contains integers or booleans that rounding in the inputs may change."""
    if not _is_discrete(row) or row.pair.side.is_source:
        return False
    inputs = [n for n, sibling in enumerate(rows) if sibling.pair.side.is_source]
    return all(rows[n].verdict.level is not Level.ERROR for n in inputs) and any(values[n].distance for n in inputs)


def _is_discrete(row: Row) -> bool:
    """Return True for a tensor of integers or booleans."""
    slot = row.pair.target or row.pair.golden
    return slot is not None and slot.value.kind is Kind.TENSOR and get_dtype_kind(slot.value.dtype) in ("int", "bool")


def _serialize_suspect(suspect: Suspect) -> tuple[str, ...]:
    return (
        suspect.op, suspect.row, suspect.side.value, suspect.line, suspect.level.value,
        suspect.why, suspect.module, suspect.where
    )  # fmt: skip


def _load_suspect(op: str, row: str, side: str, line: str, level: str, why: str, module: str, where: str) -> Suspect:
    return Suspect(op, row, Side(side), line, Level(level), why, module, where)
