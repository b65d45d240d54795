"""What a comparison comes to: counts, first suspects, the files written. Grows as rows pass by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.model import (
    GRAVITY,
    Advice,
    Counts,
    Drift,
    Kind,
    Level,
    Mode,
    Row,
    Side,
    Suspect,
)
from probe_core.store.names import is_gradient
from probe_core.store.stack import own_frame
from probe_core.table import reasons_of

SUSPECTS = 5
"""Suspects that a report keeps."""


@dataclass(frozen=True, slots=True)
class Op:
    """What the report knows of an op besides its rows.

    Attributes:
        key: Its name.
        ancestors: The modules around it, innermost first.
        shifted: True where the two runs make this call a different number of times and pairs go
            by the number of the call: then rows may be mispaired, and none is a suspect.
    """

    key: str
    ancestors: Sequence[str] = ()
    shifted: bool = False


@dataclass(slots=True)
class Report:
    """The outcome of comparing one target file with one golden file."""

    label: str
    target: Path
    golden: Path
    mode: Mode
    row_count: int
    op_count: int = 0
    counts: Counts = field(default_factory=Counts)
    candidates: dict[int, list[Suspect]] = field(default_factory=dict)
    drifting: list[Suspect] = field(default_factory=list)
    noise: float = 0.0
    around: dict[str, Sequence[str]] = field(default_factory=dict)
    first_failure: Suspect | None = None
    unreadable: list[str] = field(default_factory=list)
    unreadable_count: int = 0
    files: list[Path] = field(default_factory=list)
    advice: Advice | None = None
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def level(self) -> Level:
        """The gravest level of any row."""
        found = [level for level, count in self.counts.levels.items() if count]
        return max(found, key=GRAVITY.__getitem__, default=Level.PASS)

    @property
    def suspects(self) -> list[Suspect]:
        """Where to look first, of the first sort that there is any of.

        Forward calls whose rows fail; forward calls that part beyond rounding though no row fails;
        backward calls; gradients of parameters. A backward call takes in activations that no
        recorder notes, and a gradient is noted beside the forward call of its module: neither says
        much while a forward call is suspect.
        """
        forward, backward, gradients = (self.candidates.get(phase, []) for phase in range(3))
        return forward or self.drifting or backward or gradients

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Take in the rows of one op; ``lines`` says where each stands in the files."""
        self.op_count += 1
        for row, line in zip(rows, lines):
            self.counts.levels[row.verdict.level] += 1
            if row.pair.matched:
                self.counts.matched += 1
            elif row.pair.golden is None:
                self.counts.target_only += 1
            else:
                self.counts.golden_only += 1
            if self.first_failure is None and row.verdict.failed:
                self.first_failure = _suspect(op, rows, row, line, "")
        if not op.shifted:
            self._find_suspect(op, rows, lines)
            self._find_drift(op, rows, lines)

    def _find_suspect(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep an op that differs though its inputs agree, or the first one whose inputs differ."""
        bad = [(row, line) for row, line in zip(rows, lines) if row.verdict.level is Level.ERROR]
        if not bad:
            return
        phase = _phase(op.key)
        kept = self.candidates.get(phase, [])
        arguments = [item for item in bad if _is_argument(item[0])]
        parameters = [item for item in bad if item[0].pair.side is Side.PARAMETERS]
        inputs = [item for item in bad if item[0].pair.side.is_source]
        if is_gradient(op.key):
            found, what = bad[0], "differs"
        elif arguments:
            found, what = arguments[0], "was called with another argument"
        elif parameters:
            found, what = parameters[0], "holds other parameters"
        elif not inputs:
            found, what = bad[0], "differs although its inputs agree"
        elif not kept:
            found, what = inputs[0], "takes in values that differ; nothing before it does"
        else:
            return
        if len(kept) == SUSPECTS or any(op.key in self.around.get(one.op, ()) for one in kept):
            return  # enough, or a module around a call that is suspect already
        self.around[op.key] = op.ancestors
        self.candidates.setdefault(phase, []).append(_suspect(op, rows, *found, what))

    def _find_drift(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep a forward call that parts beyond rounding though no row of it fails."""
        if _phase(op.key) or len(self.drifting) == SUSPECTS:
            return
        drifts = [(row, line, row.verdict.drift) for row, line in zip(rows, lines) if row.verdict.drift]
        self.noise = max([self.noise, *(drift.noise for _, _, drift in drifts)])
        found = self._first_apart(
            [item for item in drifts if item[0].pair.side.is_source],
            [item for item in drifts if not item[0].pair.side.is_source],
        )
        if found and not any(op.key in self.around.get(one.op, ()) for one in self.drifting):
            self.around[op.key] = op.ancestors
            self.drifting.append(_suspect(op, rows, *found))

    def _first_apart(
        self, inputs: Sequence[_Drifting], outputs: Sequence[_Drifting]
    ) -> tuple[Row, str, str] | None:
        """The row of a call that parts beyond rounding, its line, and why.

        An output is measured against the largest scale among itself and the inputs, so that a
        difference of large numbers is not taken for an error, and against the coarsest rounding
        met so far, which later calls inherit.
        """
        explained = f"where rounding explains {self.noise:.2g}"
        before = [(drift.relative_to(drift.scale), row, line) for row, line, drift in inputs]
        worst = max((relative for relative, _, _ in before), default=0.0)
        if not self.drifting and worst > self.noise:
            row, line = next((row, line) for relative, row, line in before if relative == worst)
            return row, line, f"takes in values {worst:.2g} apart, {explained}; nothing before it does"
        scale = max((drift.scale for _, _, drift in inputs), default=0.0)
        for row, line, drift in outputs:
            relative = drift.relative_to(max(scale, drift.scale))
            if relative > self.noise and relative > drift.jump * worst:
                why = (
                    f"gives out values {relative:.2g} apart, {explained} and its inputs are {worst:.2g} apart"
                )
                return row, line, why
        return None


_Drifting = tuple[Row, str, Drift]


def _phase(op: str) -> int:
    if is_gradient(op):
        return 2
    return 1 if "backward" in op.split(".") else 0


def _is_argument(row: Row) -> bool:
    target = row.pair.target
    return target is not None and target.value.kind is Kind.SCALAR and row.pair.side.is_source


def _suspect(op: Op, rows: Sequence[Row], row: Row, line: str, what: str) -> Suspect:
    evidence = [reason.detail for reason in reasons_of(row) if reason.code == "evidence"]
    why = "; ".join(part for part in (what, *evidence) if part)
    module = op.ancestors[0] if op.ancestors else ""
    where = own_frame(next((one.stack for one in rows if one.stack), ()))
    return Suspect(op.key, row.pair.name, row.pair.side, line, row.verdict.level, why, module, where)
