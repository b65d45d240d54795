"""The verdict on two runs: what they come to, what caused it, and how much was looked at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from probe_core.model.rows import Reason


class Outcome(str, Enum):
    """The verdict on two runs."""

    DIVERGED = "diverged"
    AGREE = "agree"
    NOT_COMPARABLE = "not comparable"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many recorded values were compared, and why the others were not.

    Attributes:
        recorded: Values that either run holds.
        compared: Values that were measured on both sides.
        excused: Values that were not, counted by the reason's code.
    """

    recorded: int
    compared: int
    excused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement about an op, with the evidence that makes it true.

    Attributes:
        op: The key of the op.
        row: The name of the row that shows it; empty where the whole op does.
        reason: The statement, as a code with its detail.
        evidence: Numbers and texts that it rests on, by name.
        consequences: Findings that follow from this one, in the order of the run.
    """

    op: str
    row: str
    reason: Reason
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    consequences: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on two runs with its causes, earliest first, and what it covers."""

    outcome: Outcome
    causes: tuple[Finding, ...]
    coverage: Coverage
