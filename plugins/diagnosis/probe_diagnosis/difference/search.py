"""Search for the first difference: a walk over the ops of all ranks (docs/first-difference.md#search).

Ranks are walked in parallel, in the order of cause and effect. Between two communication calls a rank computes
by itself, so each rank is walked up to its next communication call. These calls are then matched between ranks:
the k-th call of an API in a group with the k-th call of each rank of the group, and the k-th send from one rank to
another with the k-th receive. Each rank has a history, which records whether a difference was reported on this
rank or on a rank from which it received data. If so, no later op is reported. The reported ops are those that no
other difference explains, before, across or after communication.

The search reports

* an op whose outputs differ although its input tensors agree; a differing argument is evidence;
* an op whose inputs differ although no earlier difference explains them, such as other weights or data, or the
  outermost module around it that receives values that differ;
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

from probe_core.store.names import is_backward, is_module
from probe_diagnosis.difference.explanations import explain_input, explain_output, explain_replacement
from probe_diagnosis.difference.first_receivers import name_first_receivers
from probe_diagnosis.difference.meetings import Meetings
from probe_diagnosis.difference.nodes import Fingerprint, Node, RankHistory
from probe_diagnosis.difference.rank_cursor import RankCursor
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason, summarize_inputs
from probe_diagnosis.difference.walking import CallDecision, CallDistances, Walker
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, DifferenceKind, ValueComparison
from probe_diagnosis.timeline.order import is_selecting, is_storage
from probe_diagnosis.timeline.timeline import Timeline

MAX_FURTHER_CAUSES = 5
"""Largest number of further causes of a rank in the result."""


@dataclass(frozen=True, slots=True)
class SearchResult:
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


def search_timelines(timelines: Iterable[Timeline]) -> SearchResult:
    """Search the timelines of all ranks of one step."""
    return search({timeline.rank: timeline.columns for timeline in timelines})


def search(
    ranks: Mapping[int, Sequence[ComparedCall]],
    known_values: Iterable[Fingerprint] = (),
    histories: Mapping[int, RankHistory] = MappingProxyType({}),
    carried: Mapping[int, Iterable[Fingerprint]] = MappingProxyType({}),
    *,
    follows_backward: bool = False,
) -> SearchResult:
    """Search all ranks for the ops where they diverge.

    Args:
        ranks: The ops of each rank, in the order of its record.
        known_values: Values whose difference is known to be rounding.
        histories: The histories of ranks at the end of the earlier steps.
        carried: For each rank, the parameters and states that an optimizer changed in earlier steps. Values that
            forward calls compute from these alone are known rounding as well.
        follows_backward: True if all ops follow the backward pass, as those of an optimizer do.
    """
    known = {*known_values}
    walkers = {
        rank: _create_walker(
            rank, calls, known, carried.get(rank, ()), histories.get(rank, RankHistory()), follows_backward
        )
        for rank, calls in sorted(ranks.items())
    }
    meetings = Meetings(walkers)
    while any(not walker.cursor.is_at_end for walker in walkers.values()):
        for walker in walkers.values():
            cursor = walker.cursor
            while not (cursor.is_at_end or cursor.is_at_communication()):
                if walker.enter_call(cursor.number):
                    walker.apply(cursor.number, _examine_call(walker, cursor.number))
                cursor.advance()
        meetings.settle()
    return _collect_result(walkers, meetings)


def _create_walker(
    rank: int,
    calls: Sequence[ComparedCall],
    known_values: set[Fingerprint],
    carried: Iterable[Fingerprint],
    history: RankHistory,
    follows_backward: bool,
) -> Walker:
    columns = calls if isinstance(calls, CallColumns) else CallColumns.from_calls(calls)
    cursor = RankCursor(rank, columns, follows_backward=follows_backward)
    return Walker(cursor, known_values, carried, history.copy())


def _collect_result(walkers: Mapping[int, Walker], meetings: Meetings) -> SearchResult:
    """Return the reported differences of all ranks."""
    reported = {rank: walker.reported for rank, walker in walkers.items()}
    for walker in walkers.values():
        name_first_receivers(walker)
    return SearchResult(
        _sort_nodes(node for nodes in reported.values() for node in nodes.first),
        _sort_nodes(node for nodes in reported.values() for node in nodes.further[:MAX_FURTHER_CAUSES]),
        _sort_nodes(
            walker.reported.grown
            for walker in walkers.values()
            if walker.reported.grown is not None and not walker.history.has_reported
        ),
        {rank: nodes.downstream for rank, nodes in reported.items()},
        _sort_nodes(node for nodes in reported.values() for node in nodes.vanished),
        meetings.senders,
    )


def _sort_nodes(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.layer, node.calls_since_communication, node.rank))


def _examine_call(walker: Walker, number: int) -> CallDecision:
    """Return what to report of a call that is not a communication call, and what to note of it."""
    calls, distances = walker.cursor.calls, walker.measure_call(number)
    introduces = (
        distances.scaled_output_distance > 1
        and not walker.is_explained_module(number)
        and _introduces(walker, distances)
    )
    reason, further_reason = (
        _explain_introduced(walker, number, distances) if introduces else _explain_received(walker, number, distances)
    )
    is_changed_call = (
        distances.output_distance > 0
        and not walker.history.changed_call
        and bool(calls.has_differing_argument[number])
        and find_other_argument(calls[number]) is not None
    )
    return CallDecision(
        distances,
        reason,
        further_reason,
        _explain_replacements(walker, number, distances.input_distance),
        _explain_growth(walker, number, distances.scaled_output_distance),
        is_changed_call,
    )


ReportReasons = tuple[DivergenceReason | None, DivergenceReason | None]
"""The reason for reporting a call as the first difference, and the reason for adding it to the further causes."""


def _explain_introduced(walker: Walker, number: int, distances: CallDistances) -> ReportReasons:
    """Return the reasons for reporting a call that introduces a difference in an output."""
    call, output = walker.cursor.calls[number], walker.cursor.get_value(distances.scaled_output_line)
    can_report = walker.reported.can_report(number)
    if not can_report and not (distances.input_distance <= 1 and _is_self_contained(call, output)):
        return None, None
    reason = explain_output(call, output, distances.input_distance, distances.scaled_output_distance, walker.history)
    return (reason, None) if can_report else (None, reason)


def _explain_received(walker: Walker, number: int, distances: CallDistances) -> ReportReasons:
    """Return the reason for reporting a call that receives values that differ, and that no recorded call returned."""
    history = walker.history
    if distances.input_distance <= 1 or not walker.reported.can_report(number):
        return None, None
    input_distance, line = walker.measure_received(number)
    if input_distance <= 1:
        return None, None
    largest = walker.cursor.get_value(line)
    if input_distance <= largest.jump * history.largest_multiple:
        return None, None
    least = min(input_distance, max(1.0, largest.jump * max(1.0, history.largest_multiple)))
    inputs = [largest] if walker.cursor.is_of_optimizer() else walker.cursor.calls[number].inputs()
    first = next(value for value in inputs if value.measure_multiple(value.scale, history.noise) >= least)
    return explain_input(first, input_distance, history), None


def _explain_replacements(walker: Walker, number: int, input_distance: float) -> list[DivergenceReason]:
    """Return the reasons for reporting the outputs of a call that does not line up, if another call receives them."""
    if not walker.largest.returns_in_region[number]:
        return []
    call = walker.cursor.calls[number]
    return [
        explain_replacement(call, output, input_distance, walker.history)
        for output in call.outputs()
        if output.is_in_region
    ]


def _introduces(walker: Walker, distances: CallDistances) -> bool:
    """Return True if an output differs by far more than all values that it is computed from.

    Statistics of inputs do not show all of a difference: a difference that is orthogonal to a tensor, of the relative
    size d, changes its norm by d^2 / 2 only. So inputs whose statistics differ by s may differ by sqrt(2 s).
    Statistics of integers and booleans may agree even if rounding changed a choice, such as that of an argmax.
    An argument that differs explains the output without the inputs.
    """
    cursor, history, largest, line = walker.cursor, walker.history, walker.largest, distances.scaled_output_line
    is_by_statistics, jump = largest.is_by_statistics[line], largest.jumps[line]
    before = max(distances.input_distance, distances.saved_distance)
    is_open = is_by_statistics and not cursor.calls.has_differing_argument[cursor.number]
    hidden = sqrt(2 * before / history.noise) if is_open and history.noise and isfinite(before) else 0.0
    may_be_chosen = distances.input_distance or (
        is_by_statistics and history.largest_multiple and cursor.receives_tensors()
    )
    return bool(
        distances.scaled_output_distance > (jump if is_open else 1)
        and distances.scaled_output_distance > max(jump * before, hidden)
        and not (may_be_chosen and largest.is_exact[line])
        and not (distances.saved_distance and is_selecting(cursor.calls.keys[cursor.number]))
    )


def find_other_argument(op: ComparedCall) -> ValueComparison | None:
    """Return the first argument that an op was called with in one run, and with another value in the other.

    An argument that only one run passes may have the default value in the other run, and does not count.
    """
    return next(
        (argument for argument in list_differing_arguments(op) if argument.kind is not DifferenceKind.ONE_SIDED), None
    )


def list_differing_arguments(op: ComparedCall) -> list[ValueComparison]:
    """Return the arguments that differ, except for those that select where the result is stored."""
    if op.is_shifted:
        return []
    return [
        argument
        for argument in op.arguments()
        if argument.measure_multiple(argument.scale, argument.noise) > 1 and not is_storage(argument.row)
    ]


def _explain_growth(walker: Walker, number: int, scaled_output_distance: float) -> DivergenceReason | None:
    """Return the reason for noting a call whose values differ by more than rounding explains; None if they do not.

    A value that is small relative to the inputs of its call, such as a difference of large numbers, is rounding. If
    another call receives the value and returns values of the same size, that call is noted.

    Args:
        walker: The rank.
        number: The call.
        scaled_output_distance: The largest difference of its outputs, relative to the largest input, as a multiple
            of rounding.
    """
    if walker.reported.grown is not None:
        return None
    largest, known_values = walker.largest, walker.known_rounding.values
    input_distance, input_line = largest.input_distances[number], largest.input_lines[number]
    if input_distance > 1 and known_values:
        input_distance, input_line = largest.exclude_known_inputs(number, known_values)
    output_distance = largest.output_distances[number] if scaled_output_distance > 1 else 0.0
    multiple, line = input_distance, input_line
    if output_distance >= input_distance:
        multiple, line = output_distance, largest.output_lines[number]
    if multiple <= 1:
        return None
    return DivergenceReason(
        CauseKind.GROWN,
        walker.cursor.get_value(line),
        summarize_inputs(walker.cursor.calls[number], input_distance),
        None,
        walker.history.not_compared,
        scaled_distance=scaled_output_distance,
        largest_multiple=multiple,
    )


def _is_self_contained(op: ComparedCall, output: ValueComparison) -> bool:
    """Return True if all values that a call depends on were compared.

    Modules have parameters and states, and backward calls read values that the forward pass saved. If the output was
    compared by statistics, the inputs may differ although their statistics agree.
    """
    if output.basis == Basis.STATISTICS:
        return False
    inputs = summarize_inputs(op, 0.0)
    is_call = not is_module(op.op) and not is_backward(op.op)
    return is_call and inputs.compared > 0 and not inputs.not_compared and not op.is_shifted
