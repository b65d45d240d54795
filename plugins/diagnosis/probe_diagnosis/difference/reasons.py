"""Reasons for reporting an op, with their evidence."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from probe_core.model import Side
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueComparison, ValueState

Evidence = dict[str, float | int | str]
"""The numbers and names behind a statement, by their names in the answer file."""


class CauseKind(str, Enum):
    """Kinds of causes."""

    INTRODUCED = "introduced"
    """The outputs of a call differ although its inputs agree."""
    ARGUMENT = "argument"
    """A call has a different argument, and its outputs differ."""
    RECEIVED = "taken in"
    """A call receives values that differ, and no recorded call returned them."""
    GRADIENT = "gradient"
    """The gradients of a module's parameters differ, and no earlier value does."""
    DELIVERED = "delivered"
    """A communication call delivers other values than were sent."""
    NOT_FINITE = "not finite"
    """A call returns nan or inf where the golden does not."""
    GROWN = "grown"
    """The difference grew from call to call, and no single call explains it."""
    ALTERED_CALL = "made differently"
    """A call has a different argument or dtype, while its outputs agree or were not compared."""
    ONE_SIDED = "in one run only"
    """Only one run makes the call."""
    ORDER = "order"
    """The values, or the calls, are in another order."""
    GRAPH = "gradient graph"
    """A tensor requires a gradient in one run only."""
    CONDITION = "condition"
    """The conditions of the runs differ, such as a setting, the code or the environment."""
    RANDOM = "random numbers"
    """The runs draw different random numbers."""
    NOT_RESTORED = "not restored"
    """A resumed run did not restore a state."""


class OutputAgreement(str, Enum):
    """Agreement of the outputs of a call with different arguments."""

    AGREES = "agrees"
    AGREES_IN_STATISTICS = "agrees in statistics"
    AGREES_UNMASKED = "agrees but for what is masked"
    NEAR_REFERENCE = "differs and is as near to the reference"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"


ORIGIN_EVIDENCE = "earlier_call_with_another_argument"
"""Key of the evidence for the earlier call that may have caused a differing gradient."""


class InputAgreement(NamedTuple):
    """Agreement of the input tensors of an op.

    Attributes:
        compared: Number of tensors that were compared.
        not_compared: Number of tensors that were not compared.
        largest_multiple: The largest difference of a compared tensor, as a multiple of rounding.
        by_statistics: True if any compared tensor was compared only by its statistics.
        has_non_finite: True if a tensor contains nan or inf on either side.
        has_masked_difference: True if a compared tensor has masked elements that differ between the two sides.
        has_excused: True if a compared tensor differs, but is as near to the reference as the golden tensor.
    """

    compared: int = 0
    not_compared: int = 0
    largest_multiple: float = 0.0
    by_statistics: bool = False
    has_non_finite: bool = False
    has_masked_difference: bool = False
    has_excused: bool = False


def summarize_inputs(op: ComparedCall, input_distance: float) -> InputAgreement:
    """Return the agreement of the input tensors of an op; ``input_distance`` is their largest difference."""
    inputs = list(op.inputs())
    compared = [value for value in inputs if value.state != ValueState.UNJUDGED]
    return InputAgreement(
        len(compared),
        len(inputs) - len(compared),
        input_distance,
        by_statistics=any(value.basis == Basis.STATISTICS for value in compared),
        has_non_finite=any(value.has_non_finite for value in inputs),
        has_masked_difference=any(value.has_masked_difference for value in compared),
        has_excused=any(value.is_excused for value in compared),
    )


@dataclass(frozen=True, slots=True)
class DivergenceReason:
    """The reason for reporting an op. ``build_statement`` puts it into words.

    Attributes:
        cause: The kind of cause.
        value: The value that shows the cause.
        inputs: Agreement of the input tensors of the op.
        argument: The argument that differs; None if there is none.
        not_compared: Number of earlier values of the rank that were not compared.
        sent_distance: For delivered values, the largest difference of the sent values, as a multiple of rounding.
        scaled_distance: For a difference that grew, the largest difference of the outputs relative to the largest
            input, as a multiple of rounding.
        absent_ranks: Ranks that may have sent values, but were not compared in this call.
        is_only_rank: True if other ranks may have sent values, but none of them was compared.
        largest_multiple: The largest difference, as a multiple of rounding.
        output_agreement: Agreement of the outputs of a call with different arguments; None for other causes.
        in_step: True if the reason is about one step of several, so that it does not cover earlier steps.
        arguments: All arguments that differ, each with its name or an empty text; the first is ``argument``.
        replaces: The golden call that an op of a region replaces, or an empty text.
        phases: A clause on the evidence of the step phases for the same difference; None if there is none.
        is_unexplained: True if no earlier difference was found, but earlier calls that only one run makes may have
            computed the value.
        changed_call: For a gradient, the earlier call with a different argument and different outputs; empty for
            other values.
    """

    cause: CauseKind
    value: ValueComparison
    inputs: InputAgreement = field(default_factory=InputAgreement)
    argument: ValueComparison | None = None
    not_compared: int = 0
    sent_distance: float = 0.0
    scaled_distance: float = 0.0
    absent_ranks: tuple[int, ...] = ()
    is_only_rank: bool = False
    largest_multiple: float = math.inf
    output_agreement: OutputAgreement | None = None
    in_step: bool = False
    arguments: tuple[tuple[str, ValueComparison], ...] = ()
    replaces: str = ""
    phases: Statement | None = None
    is_unexplained: bool = False
    changed_call: str = ""

    @property
    def is_saved_value(self) -> bool:
        """True if the differing value is one that the user saved."""
        return self.value.side is Side.DEBUG

    @property
    def has_no_origin(self) -> bool:
        """True if no recorded call returned the value, so that the statement must describe the earlier values."""
        is_received = not self.replaces and self.cause in (CauseKind.RECEIVED, CauseKind.GRADIENT)
        return self.is_saved_value or is_received

    @property
    def states_phases(self) -> bool:
        """True if the statement contains what the phases of the step show."""
        is_plain = not self.is_saved_value and not self.replaces
        return is_plain and self.cause in (CauseKind.RECEIVED, CauseKind.GRADIENT, CauseKind.GROWN)

    @property
    def may_cancel(self) -> bool:
        """True if the inputs agree within rounding, and their rounding explains the difference of the outputs.

        This is the case for outputs that are small relative to the inputs, such as differences of large numbers.
        """
        inputs = self.inputs
        is_grown = self.cause is CauseKind.GROWN and not self.value.side.is_source
        return is_grown and inputs.compared > 0 and max(inputs.largest_multiple, self.scaled_distance) <= 1

    @property
    def evidence(self) -> Evidence:
        """The evidence of the statement by name. Differences are multiples of the difference that rounding explains."""
        evidence = self._build_value_evidence() | self._build_argument_evidence() | self._build_input_evidence()
        if self.output_agreement is not None:
            evidence["returned"] = self.output_agreement.value
        if self.changed_call:
            evidence[ORIGIN_EVIDENCE] = self.changed_call
        if self.absent_ranks:
            evidence["ranks_not_compared"] = ", ".join(map(str, self.absent_ranks))
        return evidence

    def _build_value_evidence(self) -> Evidence:
        value = self.value
        evidence: Evidence = {
            "value": value.row,
            "judged_by": value.basis.text,
            "difference": value.evidence,
            "difference_kind": value.kind.text,
        }
        if math.isfinite(value.distance) and value.scale:
            evidence["relative_distance"] = value.distance / value.scale
            evidence["rounding"] = value.noise
            if value.explained_distance:
                evidence["baseline"] = value.explained_distance / value.scale
        if value.reference_distance_ratio:
            evidence["farther_from_reference"] = value.reference_distance_ratio
        if math.isfinite(self.largest_multiple):
            evidence["times_rounding"] = self.largest_multiple
        return evidence

    def _build_argument_evidence(self) -> Evidence:
        if self.argument is None:
            return {}
        evidence: Evidence = {"argument": self.argument.row, "argument_values": self.argument.evidence}
        if self.arguments and self.arguments[0][0]:
            evidence["argument_name"] = self.arguments[0][0]
        if len(self.arguments) > 1:
            evidence["arguments_differing"] = len(self.arguments)
        return evidence

    def _build_input_evidence(self) -> Evidence:
        if self.cause not in (CauseKind.INTRODUCED, CauseKind.ARGUMENT, CauseKind.NOT_FINITE):
            return {"earlier_values_not_compared": self.not_compared}
        inputs = self.inputs
        evidence: Evidence = {"inputs_compared": inputs.compared, "inputs_not_compared": inputs.not_compared}
        if math.isfinite(inputs.largest_multiple):
            evidence["inputs_times_rounding"] = inputs.largest_multiple
        return evidence
