"""What a comparison comes to: counts, first suspects, the files written. Grows as rows pass by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from probe_core.model import (
    GRAVITY,
    Advice,
    Counts,
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
        """Where to look first: forward calls, else backward calls, else gradients of parameters.

        A backward call takes in activations that no recorder notes, and a gradient is noted beside
        the forward call of its module: neither says much while a forward call is suspect.
        """
        return next((self.candidates[phase] for phase in sorted(self.candidates)), [])

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
                self.first_failure = _suspect(op.key, row, line)
        if not op.shifted:
            self._find_suspect(op, rows, lines)

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
        frames = next((row.stack for row in rows if row.stack), ())
        module = op.ancestors[0] if op.ancestors else ""
        suspect = _suspect(op.key, *found, what, module, own_frame(frames))
        self.candidates.setdefault(phase, []).append(suspect)


def _phase(op: str) -> int:
    if is_gradient(op):
        return 2
    return 1 if "backward" in op.split(".") else 0


def _is_argument(row: Row) -> bool:
    target = row.pair.target
    return target is not None and target.value.kind is Kind.SCALAR and row.pair.side.is_source


def _suspect(op: str, row: Row, line: str, what: str = "", module: str = "", where: str = "") -> Suspect:
    evidence = [reason.detail for reason in reasons_of(row) if reason.code == "evidence"]
    why = "; ".join(part for part in (what, *evidence) if part)
    return Suspect(op, row.pair.name, row.pair.side, line, row.verdict.level, why, module, where)
