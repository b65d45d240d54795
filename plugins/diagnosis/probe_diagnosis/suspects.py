"""Where the runs part: the calls to look at first, found as the rows of each op pass by."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Drift, How, Kind, Level, Op, Row, Side, Statistic, Suspect
from probe_core.model.dtypes import kind, same
from probe_core.model.messages import reasons_of
from probe_core.store.frames import own_frame
from probe_core.store.names import is_gradient

KEPT = 5
"""Suspects that are kept of each sort."""

UNIT = "root mean square"
"""What a difference is relative to, and what is taken of it."""

FORWARD, BACKWARD, GRADIENT, BEHIND = range(4)

_Drifting = tuple[Row, str, Drift]


class Suspects:
    """Finds the calls where the runs part, of four sorts; ``found`` gives the first sort there is.

    Attributes:
        first_failure: The first row that fails by the rule of its table and not by rounding.
    """

    def __init__(self) -> None:
        self.first_failure: Suspect | None = None
        self._region_took_in_bad: bool | None = None
        self._in_region = False
        self._region_inputs: list[_Drifting] = []
        self._failing: dict[int, list[Suspect]] = {phase: [] for phase in range(4)}
        self._drifting: list[Suspect] = []
        self._flipped: list[Suspect] = []
        self._noise = 0.0
        self._dtypes_agreed = False
        self._dtype_told = False
        self._around: dict[str, Sequence[str]] = {}

    @property
    def found(self) -> list[Suspect]:
        """Where to look first, of the first sort that there is any of.

        Forward calls whose rows fail; forward calls that part beyond rounding, or in dtype, though
        no row fails; forward calls that turn rounding into other integers or booleans, as argmax does;
        backward calls; gradients of parameters; calls behind a failing backward call, as of the optimizer.
        A backward call takes in activations that no recorder notes, and a gradient is
        noted beside the forward call of its module: neither says much while a forward call is suspect.
        """
        failing = self._failing
        forward = failing[FORWARD] or self._drifting or self._flipped
        return forward or failing[BACKWARD] or failing[GRADIENT] or failing[BEHIND]

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Look at the rows of one op; ``lines`` says where each stands in the files."""
        if self.first_failure is None:
            for row, line in zip(rows, lines):
                if row.verdict.failed and not self._follows_from_rounding(rows, row):
                    self.first_failure = suspect_of(op, rows, row, line, "")
                    break
        if not op.shifted:
            self._find_failing(op, rows, lines)
            self._find_drifting(op, rows, lines)

    def _keep(self, kept: list[Suspect], op: Op, suspect: Suspect) -> None:
        """Keep a suspect, unless there are enough or its op is a module around one that is kept."""
        if len(kept) < KEPT and not any(op.key in self._around[one.op] for one in kept):
            self._around[op.key] = op.ancestors
            kept.append(suspect)

    def _find_failing(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep an op that differs though its inputs agree, or the first one whose inputs differ."""
        bad = [(row, line) for row, line in zip(rows, lines) if row.verdict.level is Level.ERROR]
        region = [row for row in rows if row.pair.how is How.REGION and row.pair.target is not None]
        if region and not self._in_region:
            self._region_took_in_bad = None
            self._region_inputs = []
        self._in_region = bool(region)
        ends = [row for row in region if row.pair.matched and row.pair.side.is_source]
        if ends:
            bad_ends = any(row.verdict.level is Level.ERROR for row in ends)
            self._region_took_in_bad = bad_ends or bool(self._region_took_in_bad)
        if not bad:
            return
        phase = _phase(op.key)
        if phase == FORWARD and self._failing[BACKWARD]:
            phase = BEHIND
        kept = self._failing[phase]
        arguments = [item for item in bad if _is_argument(item[0])]
        parameters = [item for item in bad if item[0].pair.side is Side.PARAMETERS]
        inputs = [item for item in bad if item[0].pair.side.is_source]
        if is_gradient(op.key):
            found, what = bad[0], "differs"
        elif arguments:
            found, what = arguments[0], "was called with another argument"
        elif parameters:
            found, what = parameters[0], "holds other parameters"
        elif bad[0][0].pair.how is How.REGION and not inputs:
            known = self._region_took_in_bad is not None
            if self._region_took_in_bad or (not known and kept):
                return
            what = "comes out of calls that do not line up"
            what += ", into which went what agrees" if known else ""
            found = bad[0]
        elif not inputs:
            unequal, agree = self._agreement(rows)
            found, what = bad[0], f"differs although {agree}"
            if unequal and all(_is_discrete(row) for row, _ in bad):
                kept = self._flipped if phase == FORWARD else kept
                what = f"gives out other integers or booleans, which follow from rounding: {agree}"
        elif not kept and phase != BEHIND and not self._flipped:
            found, what = inputs[0], "takes in values that differ; nothing before it does"
        else:
            return
        self._keep(kept, op, suspect_of(op, rows, *found, what))

    def _follows_from_rounding(self, rows: Sequence[Row], row: Row) -> bool:
        """Whether a row's integers or booleans may differ because its op took in values off by rounding."""
        if not _is_discrete(row) or _is_source(row):
            return False
        sources = [one for one in rows if _is_source(one)]
        return all(one.verdict.level is not Level.ERROR for one in sources) and self._agreement(rows)[0]

    def _agreement(self, rows: Sequence[Row]) -> tuple[bool, str]:
        """Whether the tensors that a call took in are unequal though none fails, and how far they agree."""
        distances = [_distance(row) for row in rows if row.pair.matched and row.pair.side.is_source]
        worst = max(distances, default=0.0)
        if not worst:
            return False, "its inputs agree"
        noise = max([self._noise, *(row.verdict.drift.noise for row in rows if row.verdict.drift)])
        if worst <= noise:
            return True, "its inputs agree within rounding"
        return True, f"its inputs differ by only {worst:.2g} of their {UNIT}"

    def _find_drifting(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep a forward call that parts beyond rounding though no row of it fails."""
        if _phase(op.key) != FORWARD or self._failing[BACKWARD]:
            return
        self._find_dtype(op, rows, lines)
        if any(row.verdict.level is Level.ERROR and _is_discrete(row) for row in rows if _is_source(row)):
            return  # other integers went in: what comes out says nothing
        drifts = [(row, line, row.verdict.drift) for row, line in zip(rows, lines) if row.verdict.drift]
        if not drifts:
            return
        self._noise = max([self._noise, *(drift.noise for _, _, drift in drifts)])
        inputs = [item for item in drifts if item[0].pair.side.is_source]
        if self._in_region:  # what flows into the region may be noted with another of its calls
            self._region_inputs += inputs
            inputs = self._region_inputs
        outputs = [item for item in drifts if not item[0].pair.side.is_source]
        found = self._first_apart(inputs, outputs)
        if found:
            self._keep(self._drifting, op, suspect_of(op, rows, *found))

    def _find_dtype(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep the first call where a floating dtype differs after others agreed."""
        if self._dtype_told:
            return
        for row, line in zip(rows, lines):
            target, golden, _ = row.pair
            if target is None or golden is None:
                continue
            ours, theirs = target.value, golden.value
            if same(ours.dtype, theirs.dtype):
                if not self._dtypes_agreed:
                    self._dtypes_agreed = ours.shape is not None and _is_floating(ours.dtype)
            elif self._dtypes_agreed and ours.shape is not None and not self._dtype_told:
                if not (_is_floating(ours.dtype) and _is_floating(theirs.dtype)):
                    continue
                self._dtype_told = True
                why = f"is {ours.dtype} for {theirs.dtype}; before it dtypes agree"
                self._keep(self._drifting, op, suspect_of(op, rows, row, line, why))

    def _first_apart(
        self, inputs: Sequence[_Drifting], outputs: Sequence[_Drifting]
    ) -> tuple[Row, str, str] | None:
        """The row of a call that parts beyond rounding, its line, and why.

        An output is measured against the largest scale among itself and the inputs, so that a
        difference of large numbers is not taken for an error, and against the coarsest rounding
        met so far, which later calls inherit.
        """
        explained = f"where rounding explains {self._noise:.2g}"
        before = [(drift.relative_to(drift.scale), row, line) for row, line, drift in inputs]
        worst = max((relative for relative, _, _ in before), default=0.0)
        if not self._drifting and worst > self._noise:
            row, line = next((row, line) for relative, row, line in before if relative == worst)
            why = f"takes in values that differ by {worst:.2g} of their {UNIT}, {explained}"
            return row, line, f"{why}; nothing before it does"
        scale = max((drift.scale for _, _, drift in inputs), default=0.0)
        for row, line, drift in outputs:
            relative = drift.relative_to(max(scale, drift.scale))
            if relative > self._noise and relative > drift.jump * worst:
                why = f"gives out values that differ by {relative:.2g} of their {UNIT}, {explained}"
                return row, line, f"{why} and its inputs differ by {worst:.2g}"
        return None


def _is_floating(dtype: str) -> bool:
    return "float" in dtype.lower()


def _phase(op: str) -> int:
    if is_gradient(op):
        return GRADIENT
    return BACKWARD if "backward" in op.split(".") else FORWARD


def _is_source(row: Row) -> bool:
    return row.pair.side.is_source


def _is_discrete(row: Row) -> bool:
    """Return True for a tensor of integers or booleans."""
    slot = row.pair.target or row.pair.golden
    return slot is not None and slot.value.kind is Kind.TENSOR and kind(slot.value.dtype) in ("int", "bool")


def _distance(row: Row) -> float:
    """How far the sides of a matched row are apart relative to the golden: by tensors, else statistics."""
    drift = row.verdict.drift
    if drift is not None:
        return drift.relative_to(drift.scale)
    target, golden, _ = row.pair
    assert target is not None and golden is not None
    if target.value.kind is not Kind.TENSOR or target.value.statistics == golden.value.statistics:
        return 0.0
    pairs = [
        (_as_float(ours), _as_float(theirs))
        for ours, theirs in zip(target.value.statistics, golden.value.statistics)
    ]
    scale = max((abs(theirs) for _, theirs in pairs if math.isfinite(theirs)), default=0.0)
    worst = 0.0
    for ours, theirs in pairs:
        if ours != theirs and not (math.isnan(ours) and math.isnan(theirs)):
            share = abs(ours - theirs) / scale if scale else math.inf
            worst = max(worst, share if math.isfinite(share) else math.inf)
    return worst


def _as_float(value: Statistic) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_argument(row: Row) -> bool:
    target = row.pair.target
    return target is not None and target.value.kind is Kind.SCALAR and row.pair.side.is_source


def suspect_of(op: Op, rows: Sequence[Row], row: Row, line: str, what: str) -> Suspect:
    """The suspect that a row of an op makes, with its evidence, its module and its line of code."""
    evidence = [reason.detail for reason in reasons_of(row) if reason.code == "evidence"]
    why = "; ".join(part for part in (what, *evidence) if part)
    module = op.ancestors[0] if op.ancestors else ""
    where = own_frame(next((one.stack for one in rows if one.stack), ()))
    return Suspect(op.key, row.pair.name, row.pair.side, line, row.verdict.level, why, module, where)
