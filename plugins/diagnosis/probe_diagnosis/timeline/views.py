"""Views of one call and of the distances of its values, which the search for the first difference reads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from probe_core.model import Kind, Side, Value
from probe_diagnosis.collectives.calls import CommunicationCall

SAME, DIFFERS, UNJUDGED = STATES = ("same", "differs", "unjudged")
"""States of a value, as the file of a rank spells them."""

POLICY_NAME = "first_difference"
"""Name of the policy that decides if two values differ."""

BOOL_DTYPE = "<class 'bool'>"
"""Recorded dtype of a truth value."""

_MODULE_PATTERN = re.compile(r"\.(?:forward|backward)\.\d+$|\.parameters_grad\b")


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
    LONE = 3
    """An argument that only one of two calls received."""
    PERMUTED = 4
    """The same values in another order."""
    MAY_BE_PERMUTED = 5
    """Other checksums of the same statistics: the values may be in another order."""


class Difference(NamedTuple):
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
        by: The data that it was judged by.
        breaks: True if the target contains nan or inf and the golden does not.
        is_rare: True if it contains nan or inf on either side.
        line: The place of its row in the result file.
        dtypes: Both dtypes, if they are of floating point and differ.
        masked: True if what a mask hides is another constant on each side.
        floor: Distance that the baseline explains, in the unit of ``distance``; 0 without one.
        is_equal: True if its sides are known to be the same to the bit: tensors, checksums or arguments.
        requires_other_gradient: True for tensors of which only one requires a gradient.
        is_in_region: True if its sides differ, but are those of calls that do not line up; it is unjudged.
        kind: What differs.
        farther: Distance of the target from the reference, divided by that of the golden; 0 if not measured.
        is_excused: True if the target is as near to the reference as the golden, or nearly so.
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
    by: Basis = Basis.NONE
    breaks: bool = False
    is_rare: bool = False
    line: str = ""
    dtypes: str = ""
    masked: bool = False
    floor: float = 0.0
    is_equal: bool = False
    requires_other_gradient: bool = False
    is_in_region: bool = False
    kind: DifferenceKind = DifferenceKind.VALUE
    farther: float = 0.0
    is_excused: bool = False

    @property
    def is_float(self) -> bool:
        """True if rounding may explain a difference."""
        return self.noise > 0

    @property
    def is_exact(self) -> bool:
        """True if nothing is rounded, so that every difference counts."""
        return not self.noise and math.isfinite(self.distance)

    def times(self, scale: float, noise: float) -> float:
        """Return the distance as a multiple of rounding.

        Args:
            scale: The size that the distance is divided by.
            noise: The largest relative distance that rounding explains; the value's own if that is larger.

        Returns:
            0 for no difference or an unjudged value; inf for a difference that rounding cannot cause.
        """
        distance, own_noise = self.distance, self.noise
        if not distance or self.state == UNJUDGED:
            return 0.0
        if self.floor:
            return distance / max(self.floor, scale * max(noise, own_noise))
        if not scale or (not own_noise and math.isfinite(distance)):
            return math.inf
        noise = noise if noise > own_noise else own_noise
        return distance / scale / noise if noise else math.inf


@dataclass(frozen=True, slots=True)
class CallView:
    """Facts about one op of one rank.

    Attributes:
        op: Its key.
        values: All its values, judged or not.
        call: The communication call that it is; None for any other op.
        within: The keys of the modules around it, innermost first.
        place: Place of its entry in the rank's file: offset of its first byte, and of the byte after it.
        where: The line of code that made the call; empty if not recorded.
        is_shifted: True if its values are paired by the number of a call that one run makes more often.
        agrees: True if it returns tensors of floating point, all of which were compared and agree.
        golden: The key of the golden's op, where it is another one.
    """

    op: str
    values: tuple[Difference, ...]
    call: CommunicationCall | None = None
    within: tuple[str, ...] = ()
    place: tuple[int, int] = (0, 0)
    where: str = ""
    is_shifted: bool = False
    golden: str = ""
    agrees: bool = False

    def inputs(self) -> Iterable[Difference]:
        """Return the input tensors of the op, parameters included."""
        return (value for value in self.values if value.side.is_source and not value.is_scalar)

    def outputs(self) -> Iterable[Difference]:
        """Return the values that the op computed."""
        return (value for value in self.values if not value.side.is_source)

    def arguments(self) -> Iterable[Difference]:
        """Return the scalars that the op was called with."""
        return (value for value in self.values if value.side.is_source and value.is_scalar)


def is_module(key: str) -> bool:
    """Return True for a call of a module of any framework, and for the gradients of its parameters."""
    return _MODULE_PATTERN.search(key) is not None


def format_scalar(value: Value) -> str:
    """Return the value of a scalar, a text in quotes; dumps contain a boolean as its text."""
    text = value.statistics.max
    return str(text) if value.dtype == BOOL_DTYPE and text in ("True", "False") else f"{text!r:.40}"


def describe_none(value: Value, *, is_none_of_target: bool) -> str:
    """Return the evidence of a value that is None in one run."""
    shown = "a tensor" if value.kind is Kind.TENSOR else format_scalar(value)
    return f"None against {shown}" if is_none_of_target else f"{shown} against None"
