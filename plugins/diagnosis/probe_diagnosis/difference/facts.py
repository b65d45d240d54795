"""Facts about an op that the search for the first difference needs: the distance of its values, its call."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from probe_core.model import How, Kind, Level, Row, Side, Slot, Statistics, Value
from probe_core.model.dtypes import kind, same
from probe_core.model.messages import evidence_of
from probe_diagnosis.collectives.calls import Call

SAME, DIFFERS, UNJUDGED = "same", "differs", "unjudged"
"""States of a value, as the file of a rank spells them."""

IN_REGION = "paired within calls that do not line up"
"""End of the evidence of an unjudged value whose sides differ, but may not be meant to be the same."""

PARAMETER = "parameter"
"""Mark in place of the data that a value was judged by: one run has None, the other a trained tensor."""

POLICY = "first_difference"
"""Name of the policy that decides if two values differ."""

TRUTH = "<class 'bool'>"
"""Recorded dtype of a truth value."""

_MODULE = re.compile(r"\.(?:forward|backward)\.\d+$|\.parameters_grad\b")


class Apart(NamedTuple):
    """Distance between both sides of one value.

    Attributes:
        row: The name of the value's row.
        side: Its side: input, output, parameters, gradients of parameters.
        state: ``SAME``, ``DIFFERS`` or ``UNJUDGED``.
        distance: Size of the difference; inf if it cannot be measured, as for shapes and checksums.
        scale: Size of the golden, in the unit of ``distance``.
        noise: Largest relative distance that rounding explains; 0 if nothing is rounded.
        jump: Factor by which a difference must exceed earlier ones to count as the op's own.
        is_scalar: True for an argument that is not a tensor.
        why: The evidence, as text.
        by: The data that it was judged by: tensor, statistics, scalar, checksum, or exact checksum (that of
            integers and booleans); empty if unjudged.
        breaks: True if the target holds nan or inf and the golden does not.
        is_rare: True if it holds nan or inf on either side.
        line: The place of its row in the result file.
        dtypes: Both dtypes, if they are of floating point and differ.
        masked: True if what a mask hides is another constant on each side.
        floor: Distance that the baseline explains, in the unit of ``distance``; 0 without one.
        is_equal: True if its sides are known to be the same to the bit: tensors, checksums or arguments.
    """

    row: str
    side: Side
    state: str
    distance: float = 0.0
    scale: float = 0.0
    noise: float = 0.0
    jump: float = 0.0
    is_scalar: bool = False
    why: str = ""
    by: str = ""
    breaks: bool = False
    is_rare: bool = False
    line: str = ""
    dtypes: str = ""
    masked: bool = False
    floor: float = 0.0
    is_equal: bool = False

    @property
    def is_float(self) -> bool:
        """True if rounding may explain a difference."""
        return self.noise > 0

    @property
    def is_exact(self) -> bool:
        """True if nothing is rounded, so that every difference counts."""
        return not self.noise and math.isfinite(self.distance)

    @property
    def is_in_region(self) -> bool:
        """True if its sides differ, but are those of calls that do not line up."""
        return self.state == UNJUDGED and self.why.endswith(IN_REGION)

    def times(self, scale: float, noise: float) -> float:
        """Return the distance as a multiple of rounding.

        Args:
            scale: The size that the distance is divided by.
            noise: The largest relative distance that rounding explains; the value's own if that is larger.

        Returns:
            0 for no difference or an unjudged value; inf for a difference that rounding cannot cause.
        """
        distance, own = self.distance, self.noise
        if not distance or self.state == UNJUDGED:
            return 0.0
        if self.floor:
            return distance / max(self.floor, scale * max(noise, own))
        if not scale or (not own and math.isfinite(distance)):
            return math.inf
        noise = noise if noise > own else own
        return distance / scale / noise if noise else math.inf


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Facts about one op of one rank.

    Attributes:
        op: Its key.
        values: All its values, judged or not.
        call: The communication call that it is; None for any other op.
        within: The keys of the modules around it, innermost first.
        place: Place of its entry in the rank's file: offset of its first byte, and of the byte after it.
        where: The line of code that made the call; empty if not recorded.
        is_shifted: True if its values are paired by the number of a call that one run makes more often.
        lacking: Number of tensors that were not compared, besides those in ``values``.
        agrees: True if it returns tensors of floating point, all of which were compared and agree.
        golden: The key of the golden's op, where it is another one.
    """

    op: str
    values: tuple[Apart, ...]
    call: Call | None = None
    within: tuple[str, ...] = ()
    place: tuple[int, int] = (0, 0)
    where: str = ""
    is_shifted: bool = False
    lacking: int = 0
    golden: str = ""
    agrees: bool = False

    def inputs(self) -> Iterable[Apart]:
        """Return the input tensors of the op, parameters included."""
        return (value for value in self.values if value.side.is_source and not value.is_scalar)

    def outputs(self) -> Iterable[Apart]:
        """Return the values that the op computed."""
        return (value for value in self.values if not value.side.is_source)

    def arguments(self) -> Iterable[Apart]:
        """Return the scalars that the op was called with."""
        return (value for value in self.values if value.side.is_source and value.is_scalar)


def apart(row: Row, line: str = "", *, by_tensor: bool = True) -> Apart:
    """Return the distance between both sides of a row, by the verdict of ``POLICY``.

    Args:
        row: The row, after all judges.
        line: Its place in the result file.
        by_tensor: False if statistics or checksums were measured, whatever the runs hold.
    """
    target, golden = row.pair.target, row.pair.golden
    slot = target or golden
    assert slot is not None
    verdict = row.further.get(POLICY)
    is_scalar = slot.value.kind is not Kind.TENSOR
    if verdict is None:
        return Apart(slot.name, slot.side, UNJUDGED, is_scalar=is_scalar, line=line)
    codes = [reason.code for reason in verdict.reasons]
    why, masked, equal = "; ".join(evidence_of(verdict)), "masked" in codes, "equal" in codes
    is_skipped = verdict.level is Level.SKIP
    if row.was and row.verdict.level is Level.SKIP:  # a judge knows that there is nothing to judge
        is_skipped, why = True, row.was[-1].reason.detail
    if target is None or golden is None or is_skipped:
        return Apart(slot.name, slot.side, UNJUDGED, is_scalar=is_scalar, why=why, line=line)
    of_target, of_golden = target.value, golden.value
    if (of_target.kind is Kind.NULL) != (of_golden.kind is Kind.NULL):
        return _one_null(slot, of_target, of_golden, line)
    state = DIFFERS if verdict.level is Level.ERROR else SAME
    if row.pair.how is How.REGION and state == DIFFERS:
        state, why = UNJUDGED, f"{why}; {IN_REGION}" if why else IN_REGION
    drift = verdict.drift
    if drift is None:
        distance, scale, noise, jump = math.inf if state == DIFFERS else 0.0, 1.0, 0.0, 0.0
    else:
        distance, scale, noise, jump, _ = drift
    if is_scalar:
        return Apart(
            slot.name, slot.side, state, distance, scale, noise, jump, True, why, "scalar", line=line,
            is_equal=drift is None and state == SAME,
        )  # fmt: skip
    dtypes = "" if of_target.dtype == of_golden.dtype else _recast(of_target.dtype, of_golden.dtype)
    ours, theirs = _is_rare(of_target.statistics), _is_rare(of_golden.statistics)
    by = _judged_by(row, of_target, of_golden, by_tensor=by_tensor)
    breaks, is_rare = ours and not theirs, ours or theirs
    return Apart(
        slot.name, slot.side, state, distance, scale, noise, jump, False, why, by, breaks, is_rare, line,
        dtypes, masked, 0.0, equal,
    )  # fmt: skip


def is_module(key: str) -> bool:
    """Return True for a call of a module of any framework, and for the gradients of its parameters."""
    return _MODULE.search(key) is not None


def shown_scalar(value: Value) -> str:
    """Return the value of a scalar, a text in quotes; dumps hold a truth value as its text."""
    text = value.statistics.max
    return str(text) if value.dtype == TRUTH and text in ("True", "False") else f"{text!r:.40}"


def _one_null(slot: Slot, target: Value, golden: Value, line: str) -> Apart:
    """Return the distance of a value that one run recorded as None: that of an argument if taken in."""
    state = DIFFERS if slot.side.is_source else UNJUDGED
    why = "None against a value" if target.kind is Kind.NULL else "a value against None"
    by = PARAMETER if target.requires_grad or golden.requires_grad else ""
    return Apart(slot.name, slot.side, state, math.inf, 1.0, is_scalar=True, why=why, by=by, line=line)


def _recast(target: str, golden: str) -> str:
    """Return two dtypes of floating point that differ, as text; empty for others."""
    if same(target, golden) or not kind(target) == kind(golden) == "float":
        return ""
    return f"{target} against {golden}"


def _judged_by(row: Row, target: Value, golden: Value, *, by_tensor: bool) -> str:
    """Return the kind of data that two tensors were judged by."""
    if by_tensor and row.verdict.measured and target.data_name is not None and golden.data_name is not None:
        return "tensor"
    if target.checksum is not None and golden.checksum is not None and same(target.dtype, golden.dtype):
        return "exact checksum" if kind(target.dtype) in ("int", "bool") else "checksum"
    return "statistics"


def _is_rare(statistics: Statistics) -> bool:
    """Return True if the recorded maximum or minimum of a tensor is nan or inf; its mean is then as well."""
    mean = statistics.mean
    if type(mean) is float and mean - mean == 0:
        return False
    return any(isinstance(end, float) and not math.isfinite(end) for end in statistics[:2])
