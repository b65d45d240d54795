"""An earlier call that explains a difference, and the clauses on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from probe_core.errors import format_list
from probe_diagnosis.difference.differing_values import describe_values, format_difference
from probe_diagnosis.difference.reasons import CauseKind, Evidence
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.compared_calls import ValueComparison

MAX_NAMED_CALLS = 6
"""Maximum number of unpaired calls that a finding names."""

TARGET, GOLDEN = 0, 1
"""Indices of the two runs."""

SIDES = ("target", "golden")
"""Names of the two runs."""


@dataclass(frozen=True, slots=True)
class TracedCall:
    """A call that explains a difference which no earlier difference explains.

    Attributes:
        op: The key of the call.
        side: The run that makes the call, an index of ``SIDES``.
        cause: The kind of cause.
        statement: A clause whose subject is the call.
        evidence: Evidence in addition to that of the differing call.
        line: The line of code, if it is not that of the call.
    """

    op: str
    side: int
    cause: CauseKind
    statement: Statement
    evidence: Evidence = field(default_factory=dict)
    line: str = ""


def format_calls(keys: Sequence[str]) -> str:
    """Return the first calls of a list as text, and the number of the others."""
    return format_list(keys, MAX_NAMED_CALLS)


def describe_unpaired_call(side: int, replaced: Sequence[str] = (), *, is_in_both: bool) -> str:
    """Return a clause on a call that has no partner in the other run.

    Args:
        side: The run that makes the call.
        replaced: Calls that the golden makes instead; empty if there are none.
        is_in_both: True if both runs make equally many such calls in the surrounding module.
    """
    if is_in_both:
        return f"is called at another position in the {SIDES[1 - side]}"
    if replaced:
        return f"is called where the golden calls {format_calls(replaced)}"
    return f"is called in the {SIDES[side]} only"


def describe_output(value: ValueComparison, beginning: str) -> Statement:
    """Return a statement that ends with a clause on a differing output."""
    return Statement(f"{beginning} returns {describe_values(value)}", "", format_difference(value))


def build_call_evidence(calls: Sequence[Sequence[str]]) -> Evidence:
    """Return the unpaired calls of each run as evidence."""
    return {f"{side}_only": format_calls(keys) for side, keys in zip(SIDES, calls) if keys}
