"""A call of a rank with the comparisons of its values, which the search for the first difference reads."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple

from probe_core.exports import add_alias
from probe_core.model import Kind, Side, Value
from probe_diagnosis.collectives.calls import CommunicationCall

POLICY_NAME = "first_difference"
"""Name of the policy that decides if two values differ."""

BOOL_DTYPE = "<class 'bool'>"
"""Recorded dtype of a truth value."""


class ValueState(str, Enum):
    """Results of comparing a value."""

    SAME = "same"
    DIFFERS = "differs"
    UNJUDGED = "unjudged"


class Basis(IntEnum):
    """Data that a value is judged by."""

    NONE = 0
    """The value is not judged."""
    TENSOR = 1
    STATISTICS = 2
    SCALAR = 3
    CHECKSUM = 4
    EXACT_CHECKSUM = 5
    """Checksum of integers or booleans."""
    PARAMETER = 6
    """One run has None, the other a tensor that is trained."""

    @property
    def text(self) -> str:
        """The basis in words, as files state it."""
        return self.name.lower().replace("_", " ") if self else ""


class DifferenceKind(IntEnum):
    """Kinds of differences."""

    VALUE = 0
    """Other values, or no difference at all."""
    SHAPE = 1
    NONE = 2
    """None against a value."""
    ONE_SIDED = 3
    """An argument that only one of two calls received."""
    LONE = 3
    """The former name of ``ONE_SIDED``."""
    PERMUTED = 4
    """The same values in another order."""
    MAY_BE_PERMUTED = 5
    """Other checksums of the same statistics: the values may be in another order."""

    @property
    def text(self) -> str:
        """The kind in words, as files state it."""
        return "lone" if self is DifferenceKind.ONE_SIDED else self.name.lower()


class ValueComparison(NamedTuple):
    """Comparison of a value of the target with that of the golden.

    Each field is a column of ``ValueTable``, or follows from one.

    Attributes:
        row: The name of the value's row.
        side: Its side: input, output, parameters, gradients of parameters.
        state: The result of the comparison.
        distance: Size of the difference; inf if it cannot be measured, as for shapes and checksums.
        scale: Size of the golden, in the unit of ``distance``.
        noise: Largest relative distance that rounding explains; 0 if nothing is rounded.
        jump: The smallest ratio of the difference to earlier differences at which it counts as the call's own.
        is_scalar: True for an argument that is not a tensor.
        evidence: The evidence of the state, as text.
        basis: The data that the value was judged by.
        becomes_non_finite: True if the target contains nan or inf and the golden does not.
        has_non_finite: True if the target or the golden contains nan or inf.
        position: The position of the row in the result file; empty if it has none.
        dtypes: The two dtypes as text if both are floating-point and differ; else empty.
        has_masked_difference: True if the masked elements have one constant in the target and another in the golden.
        explained_distance: Distance that the baseline or the reference explains, in the unit of ``distance``; 0
            without them.
        is_equal: True if tensors, checksums or arguments show that the values are equal to the bit.
        requires_other_gradient: True for tensors of which only one requires a gradient.
        is_in_region: True if the values differ, but belong to calls that do not line up. The state is then
            ``UNJUDGED``.
        kind: What differs.
        reference_distance_ratio: Distance of the target from the reference, divided by that of the golden; 0 if not
            measured.
        is_excused: True if the target is as near to the reference as the golden, or nearly so.
    """

    row: str
    side: Side
    state: ValueState
    distance: float = 0.0
    scale: float = 0.0
    noise: float = 0.0
    jump: float = 0.0
    is_scalar: bool = False
    evidence: str = ""
    basis: Basis = Basis.NONE
    becomes_non_finite: bool = False
    has_non_finite: bool = False
    position: str = ""
    dtypes: str = ""
    has_masked_difference: bool = False
    explained_distance: float = 0.0
    is_equal: bool = False
    requires_other_gradient: bool = False
    is_in_region: bool = False
    kind: DifferenceKind = DifferenceKind.VALUE
    reference_distance_ratio: float = 0.0
    is_excused: bool = False

    @property
    def is_float(self) -> bool:
        """True if rounding may explain a difference."""
        return self.noise > 0

    @property
    def is_exact(self) -> bool:
        """True if nothing is rounded, so that every difference counts."""
        return not self.noise and math.isfinite(self.distance)

    def measure_multiple(self, scale: float, noise: float) -> float:
        """Return the distance as a multiple of rounding.

        Args:
            scale: The size that the distance is divided by.
            noise: The largest relative distance that rounding explains; the value's own if that is larger.

        Returns:
            0 for no difference or an unjudged value; inf for a difference that rounding cannot cause.
        """
        distance, own_noise = self.distance, self.noise
        if not distance or self.state == ValueState.UNJUDGED:
            return 0.0
        if self.explained_distance:
            return distance / max(self.explained_distance, scale * max(noise, own_noise))
        if not scale or (not own_noise and math.isfinite(distance)):
            return math.inf
        noise = noise if noise > own_noise else own_noise
        return distance / scale / noise if noise else math.inf


@dataclass(frozen=True, slots=True)
class ComparedCall:
    """A call of one rank with the comparisons of its values.

    Attributes:
        op: The key of the call.
        values: The comparisons of all its values, judged or not.
        communication: What it communicates; None if it is not a communication call.
        modules: The keys of the modules around it, innermost first.
        file_range: Offset of the first byte of its entry in the rank's file, and of the byte after the entry.
        code_line: The line of code that made the call; empty if not recorded.
        is_shifted: True if its values are paired by the number of a call that one run makes more often.
        golden_op: The key of the golden's call if it is another key; else empty.
        outputs_agree: True if it returns floating-point tensors, and all of them were compared and agree.
    """

    op: str
    values: tuple[ValueComparison, ...]
    communication: CommunicationCall | None = None
    modules: tuple[str, ...] = ()
    file_range: tuple[int, int] = (0, 0)
    code_line: str = ""
    is_shifted: bool = False
    golden_op: str = ""
    outputs_agree: bool = False

    def inputs(self) -> Iterable[ValueComparison]:
        """Return the input tensors of the op, parameters included."""
        return (value for value in self.values if value.side.is_source and not value.is_scalar)

    def outputs(self) -> Iterable[ValueComparison]:
        """Return the values that the op computed."""
        return (value for value in self.values if not value.side.is_source)

    def arguments(self) -> Iterable[ValueComparison]:
        """Return the scalars that the op was called with."""
        return (value for value in self.values if value.side.is_source and value.is_scalar)


def format_scalar(value: Value) -> str:
    """Return the value of a scalar, a text in quotes; dumps contain a boolean as its text."""
    text = value.statistics.max
    return str(text) if value.dtype == BOOL_DTYPE and text in ("True", "False") else f"{text!r:.40}"


def describe_none(value: Value, *, is_none_of_target: bool) -> str:
    """Return the evidence of a value that is None in one run."""
    shown = "a tensor" if value.kind is Kind.TENSOR else format_scalar(value)
    return f"None against {shown}" if is_none_of_target else f"{shown} against None"


for _name, _former in {"basis": "by", "evidence": "why", "position": "line", "becomes_non_finite": "breaks"}.items():
    add_alias(ValueComparison, _former, _name)
for _name, _former in {"golden_op": "golden", "modules": "within", "outputs_agree": "agrees"}.items():
    add_alias(ComparedCall, _former, _name)
