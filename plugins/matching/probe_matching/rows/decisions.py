"""Decisions on pairs of values in a comparison of rows: selected, as a whole, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from probe_core.model.values import OMISSIONS
from probe_matching.rows.axes import Layout

SHARED_OMISSION, REDUCED_OMISSION, SIZE_OMISSION, AXIS_OMISSION = OMISSIONS


class Treatment(str, Enum):
    """Ways of comparing a pair of values."""

    SELECTED = "selected"
    WHOLE = "whole"
    OMITTED = "omitted"


@dataclass(frozen=True, slots=True)
class Decision:
    """The treatment of a pair of values.

    Attributes:
        treatment: The treatment.
        layout: The parts of the axes of a selected value; None for others.
        omission: The reason in ``OMISSIONS`` of an omitted value; empty for others.
        scale: The factor by which a gradient of the target is multiplied.
        differs: True for a value without samples that differs between both runs, such as other weights.
    """

    treatment: Treatment
    layout: Layout | None = None
    omission: str = ""
    scale: float = 1.0
    differs: bool = False

    @property
    def depends_on_batch(self) -> bool:
        """True if samples enter the value, or anything else that both runs do not share."""
        is_open = self.differs or self.omission in (REDUCED_OMISSION, AXIS_OMISSION)
        return is_open or self.treatment is Treatment.SELECTED


WHOLE = Decision(Treatment.WHOLE)


def create_selection(layout: Layout, scale: float = 1.0) -> Decision:
    """Return the decision to compare the common rows of a value."""
    return Decision(Treatment.SELECTED, layout, scale=scale)


def create_omission(code: str, *, differs: bool = False) -> Decision:
    """Return the decision not to compare a value."""
    return Decision(Treatment.OMITTED, omission=code, differs=differs)
