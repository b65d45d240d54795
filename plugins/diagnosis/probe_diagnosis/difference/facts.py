"""What the search for the first difference wants to know of an op: how far its values are apart, its call."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from probe_core.model import Kind, Level, Row, Side
from probe_diagnosis.collectives.calls import Call

SAME, DIFFERS, UNJUDGED = "same", "differs", "unjudged"
POLICY = "first_difference"
"""The policy that says whether two values differ."""


class Apart(NamedTuple):
    """How far the two sides of one value are apart.

    Attributes:
        row: The name of its row.
        side: Where in its op it stands.
        state: Whether it is the same, differs, or cannot be judged.
        distance: The size of the difference; infinite where it is no matter of size.
        scale: The size of the golden.
        noise: Relative distance that rounding explains.
        jump: How many times its past a difference must be to be an op's own.
        is_scalar: True for an argument that is no tensor.
        why: The evidence, in words.
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
        """True where nothing is rounded, so that any difference is one."""
        return not self.noise and math.isfinite(self.distance)

    def times(self, scale: float, noise: float) -> float:
        """How many times what rounding explains the distance is, relative to ``scale``."""
        if self.state == UNJUDGED or not self.distance:
            return 0.0
        if not scale or self.is_exact:
            return math.inf
        noise = max(noise, self.noise)
        return self.distance / scale / noise if noise else math.inf


@dataclass(frozen=True, slots=True)
class OpFacts:
    """An op of one rank.

    Attributes:
        op: Its key.
        values: Its judged and unjudged values.
        call: The communication call that it is, if any.
        within: The modules around it, innermost first.
        place: Where its entry lies in the rank's file: first byte, and the byte behind.
    """

    op: str
    values: tuple[Apart, ...]
    call: Call | None = None
    within: tuple[str, ...] = ()
    place: tuple[int, int] = (0, 0)

    def inputs(self) -> Iterable[Apart]:
        """What the op took in: tensors, and no scalars."""
        return (value for value in self.values if value.side.is_source and not value.is_scalar)

    def outputs(self) -> Iterable[Apart]:
        """What the op gave out."""
        return (value for value in self.values if not value.side.is_source)

    def arguments(self) -> Iterable[Apart]:
        """The scalars that the op was called with."""
        return (value for value in self.values if value.side.is_source and value.is_scalar)


def apart(row: Row) -> Apart:
    """How far the two sides of a row are apart."""
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
    apart_by = drift.difference, drift.scale, drift.noise, drift.jump
    return Apart(slot.name, slot.side, state, *apart_by, is_scalar, why)
