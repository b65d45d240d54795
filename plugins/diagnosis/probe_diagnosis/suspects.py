"""Suspects: the calls where two runs diverge first, collected while the rows of each op are written."""

from __future__ import annotations

import math
from collections.abc import Sequence

from probe_core.model import Drift, How, Kind, Level, Op, Row, Side, Statistic, Suspect
from probe_core.model.dtypes import kind, same
from probe_core.model.messages import reasons_of
from probe_core.store.names import is_gradient
from probe_diagnosis.frames import own_frame

KEPT = 5
"""Largest number of suspects kept of each sort."""

UNIT = "root mean square"
"""Measure of the size of a tensor, by which its difference is divided."""
AGREE = "its inputs agree"
"""Beginning of the clause on inputs that are equal, or equal within rounding."""

FORWARD, BACKWARD, GRADIENT, BEHIND = range(4)
"""Phases of an op: forward, backward, gradient of parameters, forward after a backward that fails."""

_Drifting = tuple[Row, str, Drift]
"""A row, its place in the result file, and the distance between its two sides."""


class Suspects:
    """Finder of the calls where two runs diverge first.

    Suspects are collected by sort (see ``found``). "Fails" means that the verdict of a row is an error;
    "drifts" means that no row fails, but the difference is larger than rounding explains.

    Attributes:
        first_failure: The first row that fails by the rule of its table, unless rounding may explain it.
    """

    def __init__(self) -> None:
        self.first_failure: Suspect | None = None
        self._region_inputs_fail: bool | None = None
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
        """Suspects of the first sort that has any, at most ``KEPT``, in the order of the run.

        The sorts, in order of precedence:

        1. forward calls with a row that fails;
        2. forward calls that drift, or whose dtype changes, though no row fails;
        3. forward calls that may turn rounding into different integers or booleans, as argmax does;
        4. backward calls with a row that fails;
        5. gradients of parameters that fail;
        6. forward calls after a failing backward call, such as those of the optimizer.

        Backward calls come later because they read activations that no recorder writes down, and
        gradients because they are recorded next to the forward call of their module.
        """
        failing = self._failing
        forward = failing[FORWARD] or self._drifting or self._flipped
        return forward or failing[BACKWARD] or failing[GRADIENT] or failing[BEHIND]

    def add(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Examine the rows of one op, and keep it if it is a suspect.

        Args:
            op: The op. Ops whose calls may be paired wrongly (``op.shifted``) are never suspects.
            rows: Its rows, after all judges.
            lines: The place of each row in the result files, such as its line number.
        """
        if self.first_failure is None:
            for row, line in zip(rows, lines):
                if row.verdict.failed and not self._follows_from_rounding(rows, row):
                    self.first_failure = suspect_of(op, rows, row, line, "")
                    break
        if not op.shifted:
            self._find_failing(op, rows, lines)
            self._find_drifting(op, rows, lines)

    def _keep(self, kept: list[Suspect], op: Op, suspect: Suspect) -> None:
        """Keep a suspect, unless ``kept`` is full or the op is a module around a suspect in it."""
        if len(kept) < KEPT and not any(op.key in self._around[other.op] for other in kept):
            self._around[op.key] = op.ancestors
            kept.append(suspect)

    def _find_failing(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep an op whose outputs fail although its inputs do not, or the first whose inputs fail."""
        failing = [(row, line) for row, line in zip(rows, lines) if row.verdict.level is Level.ERROR]
        region = [row for row in rows if row.pair.how is How.REGION and row.pair.target is not None]
        if region and not self._in_region:
            self._region_inputs_fail = None
            self._region_inputs = []
        self._in_region = bool(region)
        region_inputs = [row for row in region if row.pair.matched and row.pair.side.is_source]
        if region_inputs:
            inputs_fail = any(row.verdict.level is Level.ERROR for row in region_inputs)
            self._region_inputs_fail = inputs_fail or bool(self._region_inputs_fail)
        if not failing:
            return
        phase = _phase(op.key)
        if phase == FORWARD and self._failing[BACKWARD]:
            phase = BEHIND
        kept = self._failing[phase]
        arguments = [item for item in failing if _is_argument(item[0])]
        parameters = [item for item in failing if item[0].pair.side is Side.PARAMETERS]
        inputs = [item for item in failing if item[0].pair.side.is_source]
        if is_gradient(op.key):
            (row, line), why = failing[0], "differs"
        elif arguments:
            (row, line), why = arguments[0], "is an argument that differs between the runs"
        elif parameters:
            (row, line), why = parameters[0], "is a parameter that differs between the runs"
        elif failing[0][0].pair.how is How.REGION and not inputs:
            has_inputs = self._region_inputs_fail is not None
            if self._region_inputs_fail or (not has_inputs and kept):
                return
            (row, line), why = failing[0], "differs, and comes from calls that do not line up"
            why += "; none of their compared inputs differs" if has_inputs else ""
        elif not inputs:
            unequal, agreement = self._agreement(rows)
            (row, line), why = failing[0], "differs, and none of its inputs was compared"
            if agreement.startswith(AGREE):
                why = f"differs although {agreement}"
            elif agreement:
                why = f"differs, and {agreement} (none fails by the table's rule)"
            if unequal and all(_is_discrete(other) for other, _ in failing):
                kept = self._flipped if phase == FORWARD else kept
                why = "holds different integers or booleans, which a small difference of the inputs may "
                why += f"cause: {agreement}"
        elif not kept and phase != BEHIND and not self._flipped:
            (row, line), why = inputs[0], "is an input that differs; no earlier call is a suspect"
        else:
            return
        self._keep(kept, op, suspect_of(op, rows, row, line, why))

    def _follows_from_rounding(self, rows: Sequence[Row], row: Row) -> bool:
        """Return True if a row holds integers or booleans that rounding in the inputs may change."""
        if not _is_discrete(row) or _is_source(row):
            return False
        inputs = [other for other in rows if _is_source(other)]
        return all(other.verdict.level is not Level.ERROR for other in inputs) and self._agreement(rows)[0]

    def _agreement(self, rows: Sequence[Row]) -> tuple[bool, str]:
        """Return how well the inputs of a call agree, none of which fails.

        Args:
            rows: The rows of the call.

        Returns:
            True if any input is unequal, and a clause that says how well they agree; the clause is empty if
            no input has a partner.
        """
        distances = [_distance(row) for row in rows if row.pair.matched and row.pair.side.is_source]
        worst = max(distances, default=0.0)
        if not worst:
            return False, AGREE if distances else ""
        noise = max([self._noise, *(row.verdict.drift.noise for row in rows if row.verdict.drift)])
        if worst <= noise:
            return True, f"{AGREE} within rounding"
        return True, f"its inputs differ by up to {worst:.2g}, relative to the golden"

    def _find_drifting(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep a forward call that differs by more than rounding explains though none of its rows fails."""
        if _phase(op.key) != FORWARD or self._failing[BACKWARD]:
            return
        self._find_dtype(op, rows, lines)
        if any(row.verdict.level is Level.ERROR and _is_discrete(row) for row in rows if _is_source(row)):
            return  # with different integers as inputs, the outputs cannot be expected to agree
        drifts = [(row, line, row.verdict.drift) for row, line in zip(rows, lines) if row.verdict.drift]
        if not drifts:
            return
        self._noise = max([self._noise, *(drift.noise for _, _, drift in drifts)])
        inputs = [item for item in drifts if item[0].pair.side.is_source]
        if self._in_region:  # the inputs of a region may be recorded with any of its calls
            self._region_inputs += inputs
            inputs = self._region_inputs
        outputs = [item for item in drifts if not item[0].pair.side.is_source]
        drifting = self._first_apart(inputs, outputs)
        if drifting:
            self._keep(self._drifting, op, suspect_of(op, rows, *drifting))

    def _find_dtype(self, op: Op, rows: Sequence[Row], lines: Sequence[str]) -> None:
        """Keep the first call in which a floating-point dtype differs after others agreed."""
        if self._dtype_told:
            return
        for row, line in zip(rows, lines):
            if row.pair.target is None or row.pair.golden is None:
                continue
            target, golden = row.pair.target.value, row.pair.golden.value
            if same(target.dtype, golden.dtype):
                if not self._dtypes_agreed:
                    self._dtypes_agreed = target.shape is not None and _is_floating(target.dtype)
            elif self._dtypes_agreed and target.shape is not None and not self._dtype_told:
                if not (_is_floating(target.dtype) and _is_floating(golden.dtype)):
                    continue
                self._dtype_told = True
                why = f"is {target.dtype} in the target and {golden.dtype} in the golden; "
                why += "it is the first floating-point dtype that differs after others agreed"
                self._keep(self._drifting, op, suspect_of(op, rows, row, line, why))

    def _first_apart(
        self, inputs: Sequence[_Drifting], outputs: Sequence[_Drifting]
    ) -> tuple[Row, str, str] | None:
        """Return the row of a call that differs by more than rounding explains, its place, and the reason.

        The difference of an output is divided by the largest scale among that output and the inputs: the
        rounding of large numbers is not taken for an error when they are subtracted. It is compared with
        the coarsest rounding met so far, because later calls inherit it.

        Args:
            inputs: The inputs of the call.
            outputs: Its other values.

        Returns:
            None if rounding, or the difference of the inputs, explains every value.
        """
        explained = f"where rounding explains {self._noise:.2g}"
        distances = [(drift.relative_to(drift.scale), row, line) for row, line, drift in inputs]
        worst = max((relative for relative, _, _ in distances), default=0.0)
        if not self._drifting and worst > self._noise:
            row, line = next((row, line) for relative, row, line in distances if relative == worst)
            why = f"is an input that differs by {worst:.2g} of the golden's {UNIT}, {explained}"
            return row, line, f"{why}; no earlier call is a suspect"
        taken = f"its inputs differ by {worst:.2g}" if inputs else "no floating-point input was measured"
        scale = max((drift.scale for _, _, drift in inputs), default=0.0)
        for row, line, drift in outputs:
            relative = drift.relative_to(max(scale, drift.scale))
            if relative > self._noise and relative > drift.jump * worst:
                whose = "golden's" if drift.scale >= scale else "golden inputs'"
                why = f"differs by {relative:.2g} of the {whose} {UNIT}, {explained}"
                return row, line, f"{why}, and {taken}"
        return None


def _is_floating(dtype: str) -> bool:
    """Return True for the name of a floating-point dtype."""
    return "float" in dtype.lower()


def _phase(op: str) -> int:
    """Return the phase of an op, by its key."""
    if is_gradient(op):
        return GRADIENT
    return BACKWARD if "backward" in op.split(".") else FORWARD


def _is_source(row: Row) -> bool:
    """Return True for a row that an op reads: an input or a parameter."""
    return row.pair.side.is_source


def _is_discrete(row: Row) -> bool:
    """Return True for a tensor of integers or booleans."""
    slot = row.pair.target or row.pair.golden
    return slot is not None and slot.value.kind is Kind.TENSOR and kind(slot.value.dtype) in ("int", "bool")


def _distance(row: Row) -> float:
    """Return the distance of both sides of a matched row, relative to the golden.

    Tensors are used if they were compared: root mean square of the difference by that of the golden. If
    not, the statistics: their largest difference by the largest statistic of the golden.
    """
    drift = row.verdict.drift
    if drift is not None:
        return drift.relative_to(drift.scale)
    assert row.pair.target is not None and row.pair.golden is not None
    target, golden = row.pair.target.value, row.pair.golden.value
    if target.kind is not Kind.TENSOR or target.statistics == golden.statistics:
        return 0.0
    statistics = [(_as_float(t), _as_float(g)) for t, g in zip(target.statistics, golden.statistics)]
    scale = max((abs(of_golden) for _, of_golden in statistics if math.isfinite(of_golden)), default=0.0)
    worst = 0.0
    for of_target, of_golden in statistics:
        if of_target != of_golden and not (math.isnan(of_target) and math.isnan(of_golden)):
            relative = abs(of_target - of_golden) / scale if scale else math.inf
            worst = max(worst, relative if math.isfinite(relative) else math.inf)
    return worst


def _as_float(value: Statistic) -> float:
    """Return a statistic as a number; nan if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_argument(row: Row) -> bool:
    """Return True for a scalar that an op was called with."""
    target = row.pair.target
    return target is not None and target.value.kind is Kind.SCALAR and row.pair.side.is_source


def suspect_of(op: Op, rows: Sequence[Row], row: Row, line: str, what: str) -> Suspect:
    """Return a row of an op as a suspect, with its evidence, its module and its line of code.

    Args:
        op: The op.
        rows: All rows of the op, one of which may hold its stack.
        row: The row to look at.
        line: The place of the row in the result files.
        what: The reason, a clause whose subject is the row; empty if there is only the row's evidence.
    """
    evidence = [reason.detail for reason in reasons_of(row) if reason.code == "evidence"]
    why = "; ".join(part for part in (what, *evidence) if part)
    module = op.ancestors[0] if op.ancestors else ""
    where = own_frame(next((other.stack for other in rows if other.stack), ()))
    return Suspect(op.key, row.pair.name, row.pair.side, line, row.verdict.level, why, module, where)
