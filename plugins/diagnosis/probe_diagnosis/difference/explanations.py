"""The reasons for reporting a call, from its values and the history of its rank."""

from __future__ import annotations

from collections.abc import Iterable

from probe_core.store.names import is_gradient
from probe_diagnosis.difference.differing_values import find_first_differing
from probe_diagnosis.difference.nodes import RankHistory
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason, summarize_inputs
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueComparison


def find_largest_difference(
    values: Iterable[ValueComparison], noise: float, scale: float = 0.0
) -> tuple[float, ValueComparison | None]:
    """Return the largest difference among values, as a multiple of rounding, and the value with this difference.

    Args:
        values: The values.
        noise: The coarsest rounding so far.
        scale: The smallest scale by which differences are divided.

    Returns:
        0 and None if nothing differs.
    """
    largest_multiple, largest_value = 0.0, None
    for value in values:
        multiple = value.measure_multiple(value.scale if value.scale > scale else scale, noise)
        if multiple > largest_multiple:
            largest_multiple, largest_value = multiple, value
    return largest_multiple, largest_value


def explain_input(value: ValueComparison, input_distance: float, history: RankHistory) -> DivergenceReason:
    """Return the reason for reporting a call whose input differs."""
    return DivergenceReason(
        CauseKind.RECEIVED, value, not_compared=history.not_compared, largest_multiple=input_distance
    )


def explain_output(
    call: ComparedCall,
    output: ValueComparison,
    input_distance: float,
    scaled_output_distance: float,
    history: RankHistory,
) -> DivergenceReason:
    """Return the reason for reporting a call whose own outputs differ.

    Args:
        call: The call.
        output: Its output that differs most.
        input_distance: The largest difference of its inputs, as a multiple of rounding.
        scaled_output_distance: The largest difference of its outputs, as a multiple of rounding.
        history: The history of the rank.
    """
    inputs, uncompared = summarize_inputs(call, input_distance), history.not_compared
    if is_gradient(call.op):
        return DivergenceReason(
            CauseKind.GRADIENT,
            output,
            inputs,
            not_compared=uncompared,
            largest_multiple=scaled_output_distance,
            changed_call=history.changed_call,
        )
    earlier_distance = 0.0 if history.has_reported else history.largest_multiple
    argument = find_first_differing(call.arguments(), output.jump * max(earlier_distance, input_distance))
    cause = CauseKind.INTRODUCED if argument is None else CauseKind.ARGUMENT
    if output.becomes_non_finite and not inputs.has_non_finite:
        cause = CauseKind.NOT_FINITE
    return DivergenceReason(cause, output, inputs, argument, uncompared, largest_multiple=scaled_output_distance)


def explain_replacement(
    call: ComparedCall, output: ValueComparison, input_distance: float, history: RankHistory
) -> DivergenceReason:
    """Return the reason for reporting a call that does not line up, if another call receives its output."""
    argument = None if call.golden_op else find_first_differing(call.arguments(), 0.0)
    cause = CauseKind.INTRODUCED if argument is None else CauseKind.ARGUMENT
    inputs = summarize_inputs(call, input_distance)
    return DivergenceReason(cause, output, inputs, argument, history.not_compared, replaces=call.golden_op)
