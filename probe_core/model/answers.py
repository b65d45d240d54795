"""The verdict on two whole runs, its causes, and the share of values that it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from probe_core.model.rows import Reason


class Outcome(str, Enum):
    """Kinds of verdicts on two runs."""

    DIVERGED = "diverged"
    AGREE = "agree"
    NOT_COMPARABLE = "not comparable"
    CANNOT_TELL = "cannot tell"


@dataclass(frozen=True, slots=True)
class Coverage:
    """Counts of the recorded values that were compared, and of those that were not.

    Attributes:
        recorded: Number of values in either run.
        compared: Number of values that were measured on both sides.
        excused: Number of values that were not measured, by the code of the reason.
    """

    recorded: int
    compared: int
    excused: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finding:
    """A statement about an op, with the evidence that makes it true.

    Attributes:
        op: The key of the op.
        row: The name of the row that shows it; empty if the whole op does.
        reason: The statement, as a code with its detail.
        evidence: The numbers and texts behind the statement, by name.
        consequences: Findings that follow from this one, in the order of the run.
    """

    op: str
    row: str
    reason: Reason
    evidence: Mapping[str, float | int | str] = field(default_factory=dict)
    consequences: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The verdict on two runs, its causes with the earliest first, and its coverage."""

    outcome: Outcome
    causes: tuple[Finding, ...]
    coverage: Coverage
