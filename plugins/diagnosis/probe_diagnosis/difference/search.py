"""Search for the first difference: a walk over the ops of all ranks (docs/first-difference.md#search).

Ranks are walked in parallel, in the order of cause and effect. Between two communication calls a rank computes
by itself, so each rank is walked up to its next communication call. These calls are then matched between ranks:
the k-th call of an API in a group with the k-th call of each rank of the group, and the k-th send from one rank to
another with the k-th receive. Each rank has a history, which records whether a difference was reported on this
rank or on a rank from which it received data. If so, no later op is reported. The reported ops are those that no
other difference explains, before, across or after communication.

The search reports

* an op whose outputs differ although its input tensors agree; a differing argument is evidence;
* an op whose inputs differ although no earlier difference explains them, such as other weights or data;
* a communication call that delivers differing values although the sent values agree;
* downstream of the first reported op, further calls of APIs whose inputs agree and whose outputs differ;
* if there is no such op, the first op whose values differ because a difference grew from call to call.

Values "differ" if their difference is larger than rounding explains in the coarsest dtype so far, and larger than
``jump`` times the difference of the inputs and of all earlier values. So rounding that grows from op to op is not
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from types import MappingProxyType

from probe_core.store.names import is_gradient
from probe_diagnosis.difference.differing_values import find_first_differing
from probe_diagnosis.difference.meetings import Meetings
from probe_diagnosis.difference.reasons import Cause, DivergenceReason, summarize_inputs
from probe_diagnosis.difference.walking import Node, RankHistory, Walker, explain_input
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.order import is_backward, is_selecting, is_storage, order_by_effect
from probe_diagnosis.timeline.timeline import Timeline
from probe_diagnosis.timeline.views import Basis, CallView, Difference, DifferenceKind, is_module

MAX_FURTHER_CAUSES = 5
"""Largest number of further causes of a rank in the result."""


@dataclass(frozen=True, slots=True)
class Searched:
    """Result of a search.

    Attributes:
        first: The ops that no other difference explains, earliest first.
        further: Ops downstream of ``first`` whose inputs agree and whose outputs differ, earliest first.
        grown: On ranks without an op in ``first``, the first ops whose values differ by more than rounding
            explains; earliest first.
        downstream: For each rank, the calls with differing values downstream of the reported call.
        vanished: Ops within modules whose own outputs agree, so that the difference had no effect.
        senders: The ranks that sent differing values, by the receiving rank and the key of the communication
            call.
    """

    first: list[Node]
    further: list[Node]
    grown: list[Node]
    downstream: dict[int, list[str]]
    vanished: list[Node]
    senders: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)


def search_timelines(timelines: Iterable[Timeline]) -> Searched:
    """Search the timelines of all ranks of one step."""
    return search({timeline.rank: timeline.columns for timeline in timelines})


def search(
    ranks: Mapping[int, Sequence[CallView]],
    known_values: Iterable[tuple[float, float]] = (),
    pasts: Mapping[int, RankHistory] = MappingProxyType({}),
    carried: Mapping[int, Iterable[tuple[float, float]]] = MappingProxyType({}),
) -> Searched:
    """Search all ranks for the ops where they diverge.

    Args:
        ranks: The ops of each rank, in the order of its record.
        known_values: Distances and scales of values whose difference is known to be rounding.
        pasts: The histories of ranks at the end of the earlier steps.
        carried: For each rank, distances and scales of parameters and states that an optimizer changed in earlier
            steps. Values that forward calls compute from these alone are known rounding as well.
    """
    columns = {
        rank: calls if isinstance(calls, CallColumns) else CallColumns.from_calls(calls)
        for rank, calls in sorted(ranks.items())
    }
    walkers = {
        rank: Walker(rank, calls, order_by_effect(calls), {*known_values}, pasts.get(rank, RankHistory()).copy())
        for rank, calls in columns.items()
    }
    for rank, values in carried.items():
        walkers[rank].carried_rounding.update(values)
        walkers[rank].known_rounding.update(values)
    if known_values:
        for walker in walkers.values():
            walker.propagate_known()
    meetings = Meetings(walkers)
    while any(walker.index < len(walker.order) for walker in walkers.values()):
        for walker in walkers.values():
            order, communication = walker.order, walker.calls.communication
            while walker.index < len(order) and (number := order[walker.index]) not in communication:
                _examine_call(walker, number)
                walker.step()
        meetings.settle()
    return Searched(
        _sort_nodes(node for walker in walkers.values() for node in walker.nodes),
        _sort_nodes(node for walker in walkers.values() for node in walker.further[:MAX_FURTHER_CAUSES]),
        _sort_nodes(
            candidate.grown
            for candidate in walkers.values()
            if candidate.grown is not None and not candidate.past.named
        ),
        {rank: walker.downstream for rank, walker in walkers.items()},
        _sort_nodes(node for walker in walkers.values() for node in walker.vanished),
        meetings.senders,
    )


def _sort_nodes(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.layer, node.place, node.rank))


def _examine_call(walker: Walker, number: int) -> None:
    """Examine a call that is not a communication call, and report it if it is the first difference."""
    past, calls = walker.past, walker.calls
    walker.withdraw_vanished(number)
    was_named = past.named
    walker.settle_gradients(number)
    largest = walker.update_differences(number)
    is_of_parameters = largest.is_of_parameters[number]
    if not is_of_parameters and walker.is_of_optimizer(number) and walker.passes_known(number):
        return
    if walker.continues_known(number):
        return
    input_distance, output_distance, scaled_distance = largest.taken[number], largest.own[number], largest.given[number]
    line = largest.given_lines[number]
    if is_of_parameters and output_distance and walker.known_rounding:
        scaled_distance, line = largest.exclude_known(number, walker.known_rounding)
    saved = past.worst if is_of_parameters else walker.track_saved(number, max(input_distance, output_distance))
    introduces = (
        scaled_distance > 1
        and calls.keys[number] not in walker.explained_modules
        and _introduces(walker, line, input_distance, saved, scaled_distance)
    )
    _report(walker, number, input_distance, scaled_distance, line if introduces else None)
    if is_of_parameters:
        walker.worst_gradient = max(walker.worst_gradient or 0.0, scaled_distance)
    if scaled_distance > 1:
        walker.explained_modules.update(calls.within[number])
    if was_named and max(input_distance, scaled_distance) > 1:
        walker.downstream.append(calls.keys[number])
    if largest.returns_in_region[number]:
        _keep_replaced(walker, number, input_distance)
    _look_for_growth(walker, number, scaled_distance)
    past.worst = max(past.worst, input_distance, output_distance)
    if output_distance and not past.changed_call and calls.has_other_argument[number]:
        past.changed_call = calls.keys[number] if find_other_argument(calls[number]) is not None else ""
    past.lacking += largest.lacking[number]


def _report(walker: Walker, number: int, input_distance: float, scaled_distance: float, line: int | None) -> None:
    """Report a call that introduces a difference in a line, or that receives one without a recorded producer."""
    past = walker.past
    if line is not None:
        call, value = walker.calls[number], walker.get_value(line)
        if walker.can_report(number):
            walker.report_call(number, _explain_output(call, value, input_distance, scaled_distance, past))
        elif input_distance <= 1 and _is_self_contained(call, value):
            walker.further.append(
                walker.create_node(number, _explain_output(call, value, input_distance, scaled_distance, past))
            )
    elif input_distance > 1 and walker.can_report(number):
        received = walker.get_value(walker.largest.taken_lines[number])
        if input_distance > received.jump * past.worst:
            walker.report_call(number, explain_input(received, input_distance, past))


def _keep_replaced(walker: Walker, number: int, input_distance: float) -> None:
    """Keep the outputs of a call that does not line up, in case that another call takes them in."""
    call = walker.calls[number]
    walker.replaced += [
        walker.create_node(number, _explain_replacement(call, value, input_distance, walker.past))
        for value in call.outputs()
        if value.is_in_region
    ]


def _introduces(
    walker: Walker, line: int, input_distance: float, saved_distance: float, scaled_distance: float
) -> bool:
    """Return True if an output differs by far more than all that it is computed from.

    Statistics of inputs do not show all of a difference: one that is orthogonal to a tensor, of the relative
    size d, changes its norm by d^2 / 2 only. So inputs whose statistics differ by s may differ by sqrt(2 s).
    Those of integers and booleans may be equal although a choice that rounding decides is another one. An
    argument that differs explains the output without the inputs.

    Args:
        walker: The rank.
        line: The line of the output in the table of values.
        input_distance: The largest difference of the inputs, as a multiple of rounding.
        saved_distance: The same of what the forward call of a backward call received or returned.
        scaled_distance: The same of the outputs.
    """
    fields = walker.calls.table.lines[line]
    is_by_statistics, jump = fields["basis"] == Basis.STATISTICS, float(fields["jump"])
    is_exact = not fields["noise"] and isfinite(fields["distance"])
    before, noise = max(input_distance, saved_distance), walker.past.noise
    is_open = is_by_statistics and not walker.calls.has_other_argument[walker.number]
    hidden = sqrt(2 * before / noise) if is_open and noise and isfinite(before) else 0.0
    may_be_chosen = input_distance or (is_by_statistics and walker.past.worst and walker.receives_tensors())
    return bool(
        scaled_distance > (jump if is_open else 1)
        and scaled_distance > max(jump * before, hidden)
        and not (may_be_chosen and is_exact)
        and not (saved_distance and is_selecting(walker.calls.keys[walker.number]))
    )


def find_other_argument(op: CallView) -> Difference | None:
    """Return the first argument that an op was called with in one run, and with another value in the other.

    An argument that only one run gives may be the usual one and does not count.
    """
    return next(
        (argument for argument in list_differing_arguments(op) if argument.kind is not DifferenceKind.LONE), None
    )


def list_differing_arguments(op: CallView) -> list[Difference]:
    """Return the arguments that differ, except for those that say where to store the result."""
    if op.is_shifted:
        return []
    return [
        argument
        for argument in op.arguments()
        if argument.times(argument.scale, argument.noise) > 1 and not is_storage(argument.row)
    ]


def _explain_replacement(
    op: CallView, output: Difference, input_distance: float, past: RankHistory
) -> DivergenceReason:
    """Return the reason for naming a call that does not line up, if what it returns is taken in."""
    argument = None if op.golden else find_first_differing(op.arguments(), 0.0)
    cause = Cause.INTRODUCED if argument is None else Cause.ARGUMENT
    return DivergenceReason(
        cause, output, summarize_inputs(op, input_distance), argument, past.lacking, replaces=op.golden
    )


def _look_for_growth(walker: Walker, number: int, scaled_distance: float) -> None:
    """Keep the first call with values that differ by more than rounding explains.

    A value that is small beside what its call took in, such as a difference of large numbers, is rounding;
    the next call that takes it in and returns a value of that size is the first.

    Args:
        walker: The rank.
        number: The call.
        scaled_distance: The largest difference of its outputs beside the largest input, as a multiple of rounding.
    """
    largest, known_values = walker.largest, walker.known_rounding
    output_distance, input_distance, line = largest.own[number], largest.taken[number], largest.taken_lines[number]
    if walker.grown is None and input_distance > 1 and known_values:
        input_distance, line = largest.exclude_known(number, known_values, of_inputs=True)
    if scaled_distance <= 1:
        if output_distance and largest.returns_other[number]:
            known_values.update(walker.collect_differing_values(number, outputs_only=True))
        output_distance = 0.0
    times, line = (
        (output_distance, largest.own_lines[number]) if output_distance >= input_distance else (input_distance, line)
    )
    if walker.grown is None and times > 1:
        op = walker.calls[number]
        because = DivergenceReason(
            Cause.GROWN, walker.get_value(line), summarize_inputs(op, input_distance), None, walker.past.lacking,
            scaled_distance=scaled_distance, largest_multiple=times,
        )  # fmt: skip
        walker.grown = walker.create_node(number, because)


def _is_self_contained(op: CallView, output: Difference) -> bool:
    """Return True if a call depends on nothing but what was compared of it.

    Modules hold parameters and states, and backward calls read what the forward pass left behind. Statistics
    that agree do not show that behind a difference the values do.
    """
    if output.by == Basis.STATISTICS:
        return False
    inputs = summarize_inputs(op, 0.0)
    is_call = not is_module(op.op) and not is_backward(op.op)
    return is_call and inputs.compared > 0 and not inputs.not_compared and not op.is_shifted


def _explain_output(
    op: CallView, output: Difference, input_distance: float, scaled_distance: float, past: RankHistory
) -> DivergenceReason:
    """Return the reason why an op whose own outputs differ is reported.

    Args:
        op: The op.
        output: Its output that differs most.
        input_distance: The largest difference of its inputs, as a multiple of rounding.
        scaled_distance: The largest difference of its outputs, as a multiple of rounding.
        past: The history of the rank.
    """
    inputs = summarize_inputs(op, input_distance)
    if is_gradient(op.op):
        return DivergenceReason(
            Cause.GRADIENT,
            output,
            inputs,
            earlier=past.lacking,
            largest_multiple=scaled_distance,
            changed_call=past.changed_call,
        )
    earlier = 0.0 if past.named else past.worst
    argument = find_first_differing(op.arguments(), output.jump * max(earlier, input_distance))
    if output.breaks and not inputs.has_non_finite:
        return DivergenceReason(
            Cause.NOT_FINITE, output, inputs, argument, past.lacking, largest_multiple=scaled_distance
        )
    cause = Cause.INTRODUCED if argument is None else Cause.ARGUMENT
    return DivergenceReason(cause, output, inputs, argument, past.lacking, largest_multiple=scaled_distance)
