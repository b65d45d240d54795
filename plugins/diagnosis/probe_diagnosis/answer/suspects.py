"""Suspects: the calls where two runs diverge first, found in the facts of all ops of a rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from probe_core.model import How, Kind, Level, Op, Record, Row, Side, Suspect
from probe_core.model.answers import Answer, Finding
from probe_core.model.dtypes import kind
from probe_core.model.messages import evidence_of
from probe_core.model.report import Report
from probe_core.model.run import Run
from probe_core.plugins.protocols import Opened
from probe_core.store.layout import RunPair
from probe_diagnosis.answer.again import aligned, is_out_of_step
from probe_diagnosis.answer.baseline import measured, raise_limits
from probe_diagnosis.answer.facts_of_op import facts_of, op_in
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.answer.rank import Found
from probe_diagnosis.answer.runs import Runs
from probe_diagnosis.answer.same_files import state_same_files
from probe_diagnosis.collectives.calls import api_of, call_of
from probe_diagnosis.difference.facts import Apart, apart
from probe_diagnosis.difference.yardstick import with_floors
from probe_diagnosis.frames import own_frame

REGION = How.REGION

KEPT = 5
"""Largest number of suspects of a rank."""


class Suspects:
    """Finder of the calls where two runs diverge first, and of the verdict on them.

    Attributes:
        first_failure: The first row that fails by the rule of its table, unless rounding may explain it.
        facts: The facts about all ops so far.
    """

    def __init__(self) -> None:
        self.first_failure: Suspect | None = None
        self.facts = RankFacts()
        self._found: list[Suspect] = []
        self._is_shifted = False
        self._first_rows: dict[str, tuple[str, str]] = {}

    @property
    def found(self) -> list[Suspect]:
        """The causes, the one to look at first before all others; known when the answer is."""
        return self._found

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Take in the rows of one op after all judges; ``lines`` are their places in the result file."""
        kept = self.facts
        kept.rank = op.rank
        self._is_shifted = self._is_shifted or op.shifted
        by_tensor = op.by_tensor
        distances = [apart(row, line, by_tensor=by_tensor) for row, line in zip(rows, lines)]
        values = with_floors(op.key, rows, distances)
        count, is_shifted = kept.tally.add, op.shifted
        for row, value in zip(rows, values):
            count(row, value, shifted=is_shifted)
        if self.first_failure is None:
            self._look_for_failure(op, rows, values)
        own_rows, own_values = rows, values
        alone = [n for n, row in enumerate(rows) if row.pair[0] is None]
        if alone:  # rows of the golden only, often those of other ops
            own = [n for n, row in enumerate(rows) if not self._is_foreign(op, row)]
            own_rows, own_values = [rows[n] for n in own], [values[n] for n in own]
        if rows and (not alone or alone[0] == len(rows) - len(alone)):
            # The rows of the target are consecutive.
            self._first_rows[op.key] = rows[0].pair.name, lines[0]
        if own_rows:
            call = None
            if api_of(op.key) is not None:
                slots = tuple(row.pair.target for row in own_rows if row.pair.target is not None)
                call = call_of(Record(0, op.key, slots))
            facts = facts_of(op, own_rows, own_values, call)
            kept.ops.append(facts)
            for row in own_rows:
                if row.pair[2] is REGION and row.pair.golden is not None:
                    kept.golden_only[op_in(row.pair.golden.name)] = None
            if all(row.pair[1] is None or row.pair[2] is REGION for row in own_rows):
                kept.target_only[op.key] = None

    def _is_foreign(self, op: Op, row: Row) -> bool:
        """Return True for a row of another op, which only the golden has; that op is noted."""
        if row.pair.target is not None or row.pair.golden is None:
            return False
        key = op_in(row.pair.golden.name)
        ops = self.facts.ops
        if not key or key == op.key or (ops and ops[-1].golden == key):
            return False
        self.facts.golden_only[key] = None
        return True

    def answer(self, report: Report, opened: Opened, pair: RunPair) -> Answer:
        """Return the verdict on the two runs, after the last row.

        Calls that are paired by numbers which do not line up are compared a second time, aligned.

        Args:
            report: The counts and notes of the comparison.
            opened: The comparison.
            pair: The step and the rank.
        """
        again = baseline = None
        try:
            if not report.interrupted and (self._is_shifted or is_out_of_step(opened)):
                again = aligned(opened, pair.rank, Suspects())
            if again is not None:
                self.facts = again
            if not report.interrupted:
                baseline = measured(opened, pair, Suspects)
        except KeyboardInterrupt:
            report.interrupted = True
        if baseline is not None:
            raise_limits(self.facts, baseline)
        runs = Runs(opened.plan, opened.target, opened.golden)
        found = Found(
            self.facts, runs, step=pair.part, interrupted=report.interrupted, several=bool(pair.label)
        )
        answer, causes = found.answer(baseline.plain() if baseline is not None else None)
        causes = [self._with_line(cause, opened.target) for cause in causes]
        answer = state_same_files(replace(answer, causes=tuple(causes)), [pair])
        self._found = [_suspect(cause) for cause in causes[:KEPT]]
        return answer

    def _with_line(self, cause: Finding, target: Run) -> Finding:
        """Return a cause with the line of its row in the table, which a further pass does not know.

        A cause that is a whole call has the line of the first row of that call.
        """
        place = target.find(cause.op)
        name, first = self._first_rows.get(cause.op, ("", ""))
        if not cause.row:
            return replace(cause, line=first or cause.line, first_row=name)
        if cause.line or place is None or not first.isdigit():
            return cause
        names = [slot.name for slot in target.record(place).slots]
        return replace(cause, line=str(int(first) + names.index(cause.row))) if cause.row in names else cause

    def plain(self) -> Any:
        """Return all that was found as JSON data, for a comparison that is resumed."""
        return {"facts": self.facts.plain(), "found": [[*_plain_suspect(one)] for one in self._found]}

    def restore(self, plain: Any) -> None:
        """Take in what ``plain`` returned.

        Raises:
            LookupError, TypeError, ValueError: The data is something else.
        """
        self.facts = RankFacts.of(plain["facts"])
        self._found = [_suspect_of(*one) for one in plain["found"]]

    # -- the first row that fails by the rule of the table ------------------------------------------

    def _look_for_failure(self, op: Op, rows: Sequence[Row], values: Sequence[Apart]) -> None:
        for row, value in zip(rows, values):
            if row.verdict.failed and not _follows_from_rounding(rows, values, row):
                module = op.ancestors[0] if op.ancestors else ""
                where = own_frame(next((other.stack for other in rows if other.stack), ()))
                self.first_failure = Suspect(
                    op.key, row.pair.name, row.pair.side, value.line, row.verdict.level,
                    "; ".join(evidence_of(row.verdict)),
                    module, where,
                )  # fmt: skip
                return


def _suspect(cause: Finding) -> Suspect:
    row = cause.row or str(cause.evidence.get("value", cause.op))
    side = next((s for s in Side if f".{s.value}" in row), Side.OUTPUT)
    module = cause.modules[0] if cause.modules else ""
    return Suspect(cause.op, row, side, cause.line, Level.ERROR, cause.reason.detail, module, cause.where)


def _follows_from_rounding(rows: Sequence[Row], values: Sequence[Apart], row: Row) -> bool:
    """Return True if a row holds integers or booleans that rounding in the inputs may change."""
    if not _is_discrete(row) or row.pair.side.is_source:
        return False
    inputs = [n for n, other in enumerate(rows) if other.pair.side.is_source]
    return all(rows[n].verdict.level is not Level.ERROR for n in inputs) and any(
        values[n].distance for n in inputs
    )


def _is_discrete(row: Row) -> bool:
    """Return True for a tensor of integers or booleans."""
    slot = row.pair.target or row.pair.golden
    return slot is not None and slot.value.kind is Kind.TENSOR and kind(slot.value.dtype) in ("int", "bool")


def _plain_suspect(one: Suspect) -> tuple[str, ...]:
    return (
        one.op, one.row, one.side.value, one.line, one.level.value, one.why, one.module, one.where
    )  # fmt: skip


def _suspect_of(
    op: str, row: str, side: str, line: str, level: str, why: str, module: str, where: str
) -> Suspect:
    return Suspect(op, row, Side(side), line, Level(level), why, module, where)
