"""Facts about an op that the search for the first difference needs: the distance of its values, its call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from probe_core.model import Kind, Level, Row, Side
from probe_diagnosis.collectives.calls import Call

SAME, DIFFERS, UNJUDGED = "same", "differs", "unjudged"
"""States of a value, as the file of a rank spells them."""

POLICY = "first_difference"
"""Name of the policy that decides if two values differ."""


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
        if self.state == UNJUDGED or not self.distance:
            return 0.0
        if not scale or self.is_exact:
            return math.inf
        noise = max(noise, self.noise)
        return self.distance / scale / noise if noise else math.inf


@dataclass(frozen=True, slots=True)
class OpFacts:
    """Facts about one op of one rank.

    Attributes:
        op: Its key.
        values: All its values, judged or not.
        call: The communication call that it is; None for any other op.
        within: The keys of the modules around it, innermost first.
        place: Place of its entry in the rank's file: offset of its first byte, and of the byte after it.
    """

    op: str
    values: tuple[Apart, ...]
    call: Call | None = None
    within: tuple[str, ...] = ()
    place: tuple[int, int] = (0, 0)

    def inputs(self) -> Iterable[Apart]:
        """Return the input tensors of the op, parameters included."""
        return (value for value in self.values if value.side.is_source and not value.is_scalar)

    def outputs(self) -> Iterable[Apart]:
        """Return the values that the op computed."""
        return (value for value in self.values if not value.side.is_source)

    def arguments(self) -> Iterable[Apart]:
        """Return the scalars that the op was called with."""
        return (value for value in self.values if value.side.is_source and value.is_scalar)


def apart(row: Row) -> Apart:
    """Return the distance between both sides of a row, by the verdict of ``POLICY``."""
    slot = row.pair.target or row.pair.golden
    assert slot is not None
    verdict = row.further.get(POLICY)
    is_scalar = slot.value.kind is not Kind.TENSOR
    if verdict is None:
        return Apart(slot.name, slot.side, UNJUDGED, is_scalar=is_scalar)
    why = "; ".join(reason.detail for reason in verdict.reasons if reason.code == "evidence")
    if verdict.level is Level.SKIP:
        return Apart(slot.name, slot.side, UNJUDGED, is_scalar=is_scalar, why=why)
    drift = verdict.drift
    state = DIFFERS if verdict.level is Level.ERROR else SAME
    if drift is None:
        distance = math.inf if state == DIFFERS else 0.0
        return Apart(slot.name, slot.side, state, distance, 1.0, 0.0, 0.0, is_scalar, why)
    measured = drift.difference, drift.scale, drift.noise, drift.jump
    return Apart(slot.name, slot.side, state, *measured, is_scalar, why)
