"""Reasons for naming an op, each with the evidence that makes it true, and their sentences."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from probe_core.model import Side
from probe_diagnosis.difference.statement import Statement
from probe_diagnosis.timeline.views import UNJUDGED, Basis, CallView, Difference, DifferenceKind

MAX_SHOWN_ARGUMENTS = 3
"""Largest number of differing arguments of a call that a sentence shows."""

IN_REGION_NOTE = "paired within calls that could not be aligned"
"""Addition to the evidence of a value whose sides may not be meant to be the same."""

MAY_BE_PERMUTED_NOTE = "the same statistics, so the values may be in another order, or differ by rounding"
"""Addition to the evidence of a value whose checksums differ and whose statistics do not."""

_OP_PREFIX_PATTERN = re.compile(r".*?\.(?:forward|backward)\.(?:\d+\.)?")


class Cause(str, Enum):
    """Sorts of causes."""

    INTRODUCED = "introduced"
    ARGUMENT = "argument"
    TAKEN_IN = "taken in"
    GRADIENT = "gradient"
    DELIVERED = "delivered"
    NOT_FINITE = "not finite"
    GROWN = "grown"
    DIFFERENTLY = "made differently"
    ONE_SIDED = "in one run only"
    ORDER = "order"
    GRAPH = "gradient graph"
    CONDITION = "condition"
    RANDOM = "random numbers"
    NOT_RESTORED = "not restored"


class OutputAgreement(str, Enum):
    """Agreement of what a call with different arguments returns."""

    AGREES = "agrees"
    AGREES_IN_STATISTICS = "agrees in statistics"
    AGREES_UNMASKED = "agrees but for what is masked"
    NEAR_REFERENCE = "differs and is as near to the reference"
    DIFFERS = "differs"
    NOT_COMPARED = "not compared"


_AGREEMENT_ENDINGS = {
    OutputAgreement.AGREES: ", and its outputs agree within rounding",
    OutputAgreement.AGREES_IN_STATISTICS: ", and its outputs agree in their statistics",
    OutputAgreement.AGREES_UNMASKED: ", and its outputs differ at most in what is masked",
    OutputAgreement.NEAR_REFERENCE: ", and its outputs are as near to the reference as those of the golden",
    OutputAgreement.DIFFERS: ", and its outputs differ",
    OutputAgreement.NOT_COMPARED: "; its outputs were not compared",
}
"""Ends of the clause on a call that was made differently."""

ORIGIN_EVIDENCE = "earlier_call_with_another_argument"
"""Name of the evidence that holds the call which may have caused a gradient that differs."""

PHASES_INTRO = "the phases of the step show: "
"""Beginning of a clause on what the phases of the step show."""


class InputAgreement(NamedTuple):
    """Agreement of the tensors that an op took in.

    Attributes:
        compared: Number of tensors that were compared.
        lacking: Number of tensors that were not.
        worst: The largest difference among the former, as a multiple of rounding.
        by_statistics: True if any of them was compared by its statistics alone.
        holds_rare: True if any of them holds nan or inf on either side.
        masked: True if the elements of any of them that a mask hides are other ones on each side.
        excused: True if any of them differs, and is as near to the reference as the golden's.
    """

    compared: int = 0
    lacking: int = 0
    worst: float = 0.0
    by_statistics: bool = False
    holds_rare: bool = False
    masked: bool = False
    excused: bool = False


def summarize_inputs(op: CallView, worst: float) -> InputAgreement:
    """Return the agreement of the tensors that an op took in, whose largest difference is ``worst``."""
    compared = lacking = 0
    by_statistics = holds_rare = masked = excused = False
    for value in op.inputs():
        if value.state == UNJUDGED:
            lacking += 1
        else:
            compared += 1
            by_statistics = by_statistics or value.by == Basis.STATISTICS
            masked = masked or value.masked
            excused = excused or value.is_excused
        holds_rare = holds_rare or value.is_rare
    return InputAgreement(compared, lacking, worst, by_statistics, holds_rare, masked, excused)


@dataclass(frozen=True, slots=True)
class DivergenceReason:
    """The reason for reporting an op.

    Attributes:
        cause: The kind of cause.
        value: The value that shows the cause.
        inputs: Agreement of the input tensors of the op.
        argument: The argument that differs; None for none.
        earlier: Number of earlier values of the rank that were not compared.
        given: The largest difference of the sent values, as a multiple of rounding. If a difference grew, the
            difference of the outputs relative to the largest input.
        absent: Ranks that may have sent values, but were not compared in this call.
        is_alone: True if other ranks may have sent values, but none of them was compared.
        times: The largest difference, as a multiple of rounding.
        returned: Agreement of the outputs of a call with different arguments; None for other causes.
        in_step: True if earlier steps are not known.
        arguments: All arguments that differ, each with its name or an empty text; the first is ``argument``.
        replaces: The golden call that an op of a region replaces, or an empty text.
        phases: A clause on the evidence of the step phases for the same difference; None if there is none.
        made: For a gradient, an earlier call with a different argument and different outputs; else empty.
    """

    cause: Cause
    value: Difference
    inputs: InputAgreement = field(default_factory=InputAgreement)
    argument: Difference | None = None
    earlier: int = 0
    given: float = 0.0
    absent: tuple[int, ...] = ()
    is_alone: bool = False
    times: float = math.inf
    returned: OutputAgreement | None = None
    in_step: bool = False
    arguments: tuple[tuple[str, Difference], ...] = ()
    replaces: str = ""
    phases: Statement | None = None
    made: str = ""

    @property
    def statement(self) -> Statement:
        """The reason as a clause whose subject is the op."""
        if self.cause is Cause.DIFFERENTLY and self.value.side is not Side.DEBUG and not self.replaces:
            return Statement(self._describe_altered_call())
        clause, more = self._describe_value(), ""
        if self.phases is not None and self.states_phases:
            clause = f"{clause}; {PHASES_INTRO}{self.phases.brief}"
            more = self.phases._replace(brief="").text
        if self._is_without_origin():
            more += f"{';' if more or self.phases else ', and'} {self._describe_history()}"
        return Statement(clause, more, format_difference(self.value))

    def _describe_value(self) -> str:
        """Return the statement without the values behind it and without what came before."""
        if self.value.side is Side.DEBUG:
            return "is a saved value that differs"
        if self.replaces:
            return f"is called where the golden calls {self.replaces}, and returns {describe_values(self.value)}"
        if self.cause is Cause.TAKEN_IN:
            return f"receives {describe_values(self.value)}"
        if self.cause is Cause.GRADIENT:
            return describe_difference(self.value)
        if self.cause is Cause.GROWN:
            return self._describe_growth()
        called = ""
        if self.argument is not None:
            called = f"was called with a different argument ({self.argument_text}) and "
        if self.cause is Cause.DELIVERED:
            return f"{called}{self._describe_delivery()}"
        if self.cause is Cause.NOT_FINITE:
            return f"{called}returns nan or inf where the golden does not, {self._describe_agreement()}"
        if self.argument is not None:
            return f"{called}returns {describe_values(self.value)}"
        return f"returns {describe_values(self.value)}, {self._describe_agreement()}"

    def _is_without_origin(self) -> bool:
        """Return True if the statement tells what came before."""
        is_plain = not self.replaces and self.cause in (Cause.TAKEN_IN, Cause.GRADIENT)
        return self.value.side is Side.DEBUG or is_plain

    @property
    def states_phases(self) -> bool:
        """True if the statement contains what the phases of the step show."""
        is_plain = self.value.side is not Side.DEBUG and not self.replaces
        return is_plain and self.cause in (Cause.TAKEN_IN, Cause.GRADIENT, Cause.GROWN)

    @property
    def evidence(self) -> dict[str, float | int | str]:
        """The numbers behind the statement, by name; differences are multiples of what rounding explains."""
        value, inputs = self.value, self.inputs
        facts: dict[str, float | int | str] = {
            "value": value.row,
            "judged_by": value.by.text,
            "difference": value.why,
            "difference_kind": value.kind.name.lower(),
        }
        if math.isfinite(value.distance) and value.scale:
            facts["relative_distance"] = value.distance / value.scale
            facts["rounding"] = value.noise
            if value.floor:
                facts["baseline"] = value.floor / value.scale
        if value.farther:
            facts["farther_from_reference"] = value.farther
        if math.isfinite(self.times):
            facts["times_rounding"] = self.times
        if self.argument is not None:
            facts["argument"] = self.argument.row
            facts["argument_values"] = self.argument.why
            if self.arguments and self.arguments[0][0]:
                facts["argument_name"] = self.arguments[0][0]
            if len(self.arguments) > 1:
                facts["arguments_differing"] = len(self.arguments)
        if self.cause in (Cause.INTRODUCED, Cause.ARGUMENT, Cause.NOT_FINITE):
            facts["inputs_compared"] = inputs.compared
            facts["inputs_not_compared"] = inputs.lacking
            if math.isfinite(inputs.worst):
                facts["inputs_times_rounding"] = inputs.worst
        else:
            facts["earlier_values_not_compared"] = self.earlier
        if self.returned is not None:
            facts["returned"] = self.returned.value
        if self.made:
            facts[ORIGIN_EVIDENCE] = self.made
        if self.absent:
            facts["ranks_not_compared"] = ", ".join(map(str, self.absent))
        return facts

    @property
    def may_cancel(self) -> bool:
        """True for outputs that differ by no more than rounding of larger inputs, which agree, explains."""
        inputs = self.inputs
        is_grown = self.cause is Cause.GROWN and not self.value.side.is_source
        return is_grown and inputs.compared > 0 and max(inputs.worst, self.given) <= 1

    def _describe_growth(self) -> str:
        """Return the clause on the first values that differ where no call introduces a difference."""
        if self.may_cancel:
            agreement = self._describe_agreement()
            return f"returns values that differ, {agreement}, but rounding of its inputs explains as much"
        if self.value.is_exact:
            return "returns different integers, which inputs that differ within rounding may cause"
        return (
            "is the first whose values differ by more than rounding explains; the difference grew call by "
            "call, and no single call explains it"
        )

    def _describe_altered_call(self) -> str:
        """Return the clause on a call with different arguments, whose values agree or were not compared."""
        if self.argument is not None:
            done = f"was called with a different argument ({self.argument_text})"
        else:
            done = f"computes in another dtype ({_OP_PREFIX_PATTERN.sub('', self.value.row)}: {self.value.dtypes})"
        return f"{done}{_AGREEMENT_ENDINGS[self.returned] if self.returned is not None else ''}"

    def _describe_history(self) -> str:
        """Return a clause on what came before, no more than was compared."""
        it = "them" if self.cause is Cause.TAKEN_IN else "it"
        if self.made:
            return f"the different argument of the earlier call {self.made} may have caused {it}"
        if not self.earlier:
            if self.in_step:
                return f"no earlier difference of this step explains {it}"
            return f"no earlier difference explains {it}"
        values = "1 earlier value was" if self.earlier == 1 else f"{self.earlier:,} earlier values were"
        if self.in_step:
            return f"no difference found earlier in this step explains {it}; {values} not compared"
        return f"no difference found earlier explains {it}; {values} not compared"

    @property
    def argument_text(self) -> str:
        """The arguments that differ, by their names if these are known, with both values."""
        assert self.argument is not None
        arguments = self.arguments or (("", self.argument),)
        shown = [f"{name and f'{name}, '}{format_difference(value)}" for name, value in arguments[:MAX_SHOWN_ARGUMENTS]]
        more = len(arguments) - len(shown)
        return "; ".join(shown) + (f"; {more} more differ" if more else "")

    def _describe_agreement(self) -> str:
        """Return a clause that says how well the inputs agree, no more than was compared."""
        inputs = self.inputs
        if not inputs.compared:
            return "and no input tensor was compared" if inputs.lacking else "and it receives no tensor"
        if inputs.worst > 1:
            if self.cause is Cause.NOT_FINITE:
                return "although its inputs are finite" if not inputs.holds_rare else "and its inputs differ"
            return "far more than its inputs do"
        all_of = inputs.compared + inputs.lacking
        which = f"{inputs.compared} of its {all_of} inputs" if inputs.lacking else "its inputs"
        if inputs.by_statistics:
            which = f"the statistics of {which}"
        rest = f" and {inputs.lacking} could not be compared" if inputs.lacking else ""
        if inputs.masked:
            where = "where a mask determines them" if inputs.by_statistics else "in what is masked"
            rounding = "within rounding and " if inputs.worst else ""
            return f"although {which} differ at most {rounding}{where}{rest}"
        near = " or are as near to the reference as the golden's" if inputs.excused else ""
        return f"although {which} agree{' within rounding' if inputs.worst else ''}{near}{rest}"

    def _describe_delivery(self) -> str:
        """Return the clause on a communication call that delivers values that differ."""
        if self.absent:
            ranks, verb = ("rank", "was") if len(self.absent) == 1 else ("ranks", "were")
            who = f"{ranks} {', '.join(map(str, self.absent))} may have sent them, and {verb}"
            return f"delivers {describe_values(self.value)}; {who} not compared in this call"
        if self.is_alone:
            others = "other ranks may have sent them, and were not compared here"
            return f"delivers {describe_values(self.value)}; {others}"
        if not self.given:
            sent = "although no difference was found in the sent values"
        elif self.given <= 1:
            sent = "although the sent values agree within rounding"
        else:
            sent = "far more than the sent values"
        return f"delivers {describe_values(self.value)}, {sent}"


def describe_values(value: Difference) -> str:
    """Return the object of a clause on a call that returns or receives a value that differs."""
    is_permuted = value.kind is DifferenceKind.PERMUTED
    return "the same values in another order" if is_permuted else "values that differ"


def describe_difference(value: Difference) -> str:
    """Return a clause on a value that differs."""
    return f"holds {describe_values(value)}" if value.kind is DifferenceKind.PERMUTED else "differs"


def format_difference(value: Difference) -> str:
    """Return the short name of a value, and the evidence that it differs."""
    name = _OP_PREFIX_PATTERN.sub("", value.row)
    explained = ""
    if value.floor and value.scale and math.isfinite(value.floor):
        explained = f", the baseline at most {value.floor / value.scale:.2g}"
    explained += _describe_reference_distance(value)
    evidence = format_evidence(value)
    return f"{name}: {evidence}{explained}" if evidence else name


def _describe_reference_distance(value: Difference) -> str:
    """Return an addition on the distance of the target from the reference; empty if it was not measured."""
    if not value.farther or value.is_excused:
        return ""
    if math.isinf(value.farther):
        return "; the golden agrees with the reference, the target does not"
    if value.farther <= 1:
        return f"; the target is {value.farther:.2g} times as far from the reference as the golden"
    return f"; the target is {value.farther:.3g} times farther from the reference than the golden"


def format_evidence(value: Difference) -> str:
    """Return the evidence that a value differs; empty if there is none."""
    order = MAY_BE_PERMUTED_NOTE if value.kind is DifferenceKind.MAY_BE_PERMUTED else ""
    return "; ".join(filter(None, (value.why, order, IN_REGION_NOTE if value.is_in_region else "")))


def find_first_differing(values: Iterable[Difference], more_than: float) -> Difference | None:
    """Return the first argument that differs, by more than so many times its rounding; None for none."""
    return next((value for value in values if value.times(value.scale, value.noise) > max(1.0, more_than)), None)
