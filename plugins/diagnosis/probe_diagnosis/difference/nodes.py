"""A call where the runs diverge, and the history of a rank that decides which calls are reported."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import DivergenceReason
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueComparison

Fingerprint = tuple[float, float]
"""Distance and scale of a value that differs. They identify the value wherever calls receive or return it: that two
unrelated values have the same distance and scale is unlikely, because both are computed in float64."""


@dataclass(frozen=True, slots=True)
class Node:
    """A call where the runs diverge.

    Attributes:
        rank: The rank that made the call.
        call: The call.
        reason: The reason for reporting it.
        layer: Number of communication calls before the call.
        calls_since_communication: Number of calls between the last of these communication calls and the call.
    """

    rank: int
    call: ComparedCall
    reason: DivergenceReason
    layer: int
    calls_since_communication: int

    @property
    def why(self) -> str:
        """The reason, a clause whose subject is the call."""
        return build_statement(self.reason).text

    @property
    def facts(self) -> ComparedCall:
        """The call, under its former name."""
        warnings.warn("Node.facts is called Node.call now.", DeprecationWarning, stacklevel=2)
        return self.call

    @property
    def because(self) -> DivergenceReason:
        """The reason, under its former name."""
        warnings.warn("Node.because is called Node.reason now.", DeprecationWarning, stacklevel=2)
        return self.reason


@dataclass(slots=True)
class RankHistory:
    """The history of a rank up to a call.

    Attributes:
        largest_multiple: The largest difference so far, as a multiple of rounding.
        noise: The coarsest rounding so far.
        has_reported: True if a difference was reported.
        layer: Number of communication calls so far.
        not_compared: Number of tensors so far that were not compared.
        changed_call: The first call so far with a different argument whose outputs differ, even slightly; empty
            if there is none.
    """

    largest_multiple: float = 0.0
    noise: float = 0.0
    has_reported: bool = False
    layer: int = 0
    not_compared: int = 0
    changed_call: str = ""

    def merge(self, other_history: RankHistory) -> None:
        """Merge the history of another rank into this one."""
        self.largest_multiple = max(self.largest_multiple, other_history.largest_multiple)
        self.noise = max(self.noise, other_history.noise)
        self.has_reported = self.has_reported or other_history.has_reported
        self.layer = max(self.layer, other_history.layer)
        self.not_compared = max(self.not_compared, other_history.not_compared)
        self.changed_call = self.changed_call or other_history.changed_call

    def copy(self) -> RankHistory:
        """Return a copy to send to another rank."""
        return RankHistory(
            self.largest_multiple, self.noise, self.has_reported, self.layer, self.not_compared, self.changed_call
        )


def is_large(value: ValueComparison) -> bool:
    """Return True for a difference so large that agreeing values downstream show that it vanished."""
    return value.measure_multiple(value.scale, value.noise) >= limits().min_vanishing_multiple


def can_show_gone(node: Node) -> bool:
    """Return True if agreeing values downstream of a difference show that it had no effect.

    A small difference may be invisible in statistics after larger values are added to it; a large difference is not.
    """
    value = node.reason.value
    return value.basis != Basis.STATISTICS or is_large(value)
