"""The statement of a reason for reporting an op."""

from __future__ import annotations

from probe_diagnosis.difference.differing_values import (
    describe_difference,
    describe_values,
    format_difference,
    get_short_name,
)
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason, OutputAgreement
from probe_diagnosis.difference.statement import Statement

MAX_SHOWN_ARGUMENTS = 3
"""Largest number of differing arguments of a call that a sentence shows."""

PHASES_INTRO = "the phases of the step show: "
"""Beginning of a clause on what the phases of the step show."""

_AGREEMENT_ENDINGS = {
    None: "",
    OutputAgreement.AGREES: ", and its outputs agree within rounding",
    OutputAgreement.AGREES_IN_STATISTICS: ", and its outputs agree in their statistics",
    OutputAgreement.AGREES_UNMASKED: ", and its outputs differ at most in masked elements",
    OutputAgreement.NEAR_REFERENCE: ", and its outputs are as near to the reference as the golden outputs",
    OutputAgreement.DIFFERS: ", and its outputs differ",
    OutputAgreement.NOT_COMPARED: "; its outputs were not compared",
}
"""Ends of the clause on a call with different arguments, by the agreement of its outputs."""


def build_statement(reason: DivergenceReason) -> Statement:
    """Return a reason as a clause whose subject is the op."""
    if reason.cause is CauseKind.ALTERED_CALL and not reason.is_saved_value and not reason.replaces:
        return Statement(_describe_altered_call(reason))
    clause, details = _describe_value(reason), ""
    if reason.phases is not None and reason.states_phases:
        clause = f"{clause}; {PHASES_INTRO}{reason.phases.brief}"
        details = reason.phases._replace(brief="").text
    if reason.has_no_origin:
        separator = ";" if details or reason.phases else ", and"
        details += f"{separator} {_describe_history(reason)}"
    return Statement(clause, details, format_difference(reason.value))


def format_different_arguments(reason: DivergenceReason) -> str:
    """Return the arguments that differ, by their names if these are known, with both values."""
    assert reason.argument is not None
    arguments = reason.arguments or (("", reason.argument),)
    texts = [f"{name and f'{name}, '}{format_difference(value)}" for name, value in arguments[:MAX_SHOWN_ARGUMENTS]]
    omitted_count = len(arguments) - len(texts)
    return "; ".join(texts) + (f"; {omitted_count} more differ" if omitted_count else "")


def _describe_value(reason: DivergenceReason) -> str:
    """Return the clause on the differing value, without its evidence and without the earlier differences."""
    values = describe_values(reason.value)
    if reason.is_saved_value:
        return "is a saved value that differs"
    if reason.replaces:
        return f"is called where the golden calls {reason.replaces}, and returns {values}"
    if reason.cause is CauseKind.RECEIVED:
        return f"receives {values}"
    if reason.cause is CauseKind.GRADIENT:
        return describe_difference(reason.value)
    if reason.cause is CauseKind.GROWN:
        return _describe_growth(reason)
    argument_clause = ""
    if reason.argument is not None:
        argument_clause = f"was called with a different argument ({format_different_arguments(reason)}) and "
    if reason.cause is CauseKind.DELIVERED:
        return f"{argument_clause}{_describe_delivery(reason)}"
    if reason.cause is CauseKind.NOT_FINITE:
        return f"{argument_clause}returns nan or inf where the golden does not, {_describe_agreement(reason)}"
    if reason.argument is not None:
        return f"{argument_clause}returns {values}"
    return f"returns {values}, {_describe_agreement(reason)}"


def _describe_altered_call(reason: DivergenceReason) -> str:
    """Return the clause on a call with different arguments, whose values agree or were not compared."""
    if reason.argument is not None:
        clause = f"was called with a different argument ({format_different_arguments(reason)})"
    else:
        clause = f"computes in another dtype ({get_short_name(reason.value.row)}: {reason.value.dtypes})"
    return f"{clause}{_AGREEMENT_ENDINGS[reason.output_agreement]}"


def _describe_growth(reason: DivergenceReason) -> str:
    """Return the clause on the first values that differ where no call introduces a difference."""
    if reason.may_cancel:
        agreement = _describe_agreement(reason)
        return f"returns values that differ, {agreement}, but rounding of its inputs explains a difference of this size"
    if reason.value.is_exact:
        return "returns different integers, which inputs that differ within rounding may cause"
    return (
        "is the first call whose values differ by more than rounding explains; the difference grew call by "
        "call, and no single call explains it"
    )


def _describe_history(reason: DivergenceReason) -> str:
    """Return a clause on earlier differences. It states only what the compared values show."""
    pronoun = "them" if reason.cause is CauseKind.RECEIVED else "it"
    if reason.changed_call:
        return f"the different argument of the earlier call {reason.changed_call} may have caused {pronoun}"
    if reason.is_unexplained:
        return f"no recorded call returned {pronoun}"
    scope, step = (" of this step", " in this step") if reason.in_step else ("", "")
    if reason.not_compared:
        return f"no difference found earlier{step} explains {pronoun}"
    return f"no earlier difference{scope} explains {pronoun}"


def _describe_agreement(reason: DivergenceReason) -> str:
    """Return a clause on the agreement of the inputs. It states only what the compared inputs show."""
    inputs = reason.inputs
    if not inputs.compared:
        return "and no input tensor was compared" if inputs.not_compared else "and it receives no tensor"
    if inputs.largest_multiple > 1:
        if reason.cause is CauseKind.NOT_FINITE:
            return "although its inputs are finite" if not inputs.has_non_finite else "and its inputs differ"
        return "far more than its inputs do"
    subject, rest = "its inputs", ""
    if inputs.not_compared:
        subject = f"{inputs.compared} of its {inputs.compared + inputs.not_compared} inputs"
        rest = f" and {inputs.not_compared} could not be compared"
    if inputs.by_statistics:
        subject = f"the statistics of {subject}"
    if inputs.has_masked_difference:
        where = "where a mask determines them" if inputs.by_statistics else "in what is masked"
        rounding = "within rounding and " if inputs.largest_multiple else ""
        return f"although {subject} differ at most {rounding}{where}{rest}"
    rounding = " within rounding" if inputs.largest_multiple else ""
    excused = " or are as near to the reference as the golden inputs" if inputs.has_excused else ""
    return f"although {subject} agree{rounding}{excused}{rest}"


def _describe_delivery(reason: DivergenceReason) -> str:
    """Return the clause on a communication call that delivers values that differ."""
    clause = f"delivers {describe_values(reason.value)}"
    if reason.absent_ranks:
        ranks, verb = ("rank", "was") if len(reason.absent_ranks) == 1 else ("ranks", "were")
        senders = f"{ranks} {', '.join(map(str, reason.absent_ranks))}"
        return f"{clause}; {senders} may have sent them, and {verb} not compared in this call"
    if reason.is_only_rank:
        return f"{clause}; the ranks that may have sent them were not compared in this call"
    if not reason.sent_distance:
        return f"{clause}, although no difference was found in the sent values"
    if reason.sent_distance <= 1:
        return f"{clause}, although the sent values agree within rounding"
    return f"{clause}, far more than the sent values"
