"""Search for the first difference: a walk over the ops of all ranks (docs/first-difference.md#search).

Ranks are walked side by side, in the order of cause and effect. Between two communication calls a rank
computes by itself, so each rank is walked up to its next call. Calls are then matched as the ranks must have
met in them: the k-th call of an API in a group with the k-th of each of the group's ranks, the k-th send from
one rank to another with the k-th receive. Each rank carries a history: has a difference been reported in its
past, or in the past of any rank that it received from? If so, nothing after it is reported. What remains are
the ops that no other difference explains, be it before, across or after communication.

The search reports

* an op whose outputs differ although its input tensors agree; a differing argument is evidence;
* an op whose inputs differ although no earlier difference explains them, such as other weights or data;
* a communication call that delivers values that differ although the values that were sent agree;
* behind the first of these, further calls of APIs whose inputs agree and whose outputs do not;
* if there is none of these, the first op whose values differ, the difference having grown call by call.

"Differ" means: by more than rounding explains in the coarsest dtype met so far, and by more than ``jump``
times the difference of the inputs or of anything earlier. So rounding that grows from op to op is not
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from types import MappingProxyType

from probe_core.store.names import is_gradient
from probe_diagnosis.difference.meetings import Meetings
from probe_diagnosis.difference.reasons import Because, Cause, first_differing, inputs_of
from probe_diagnosis.difference.walking import Node, Past, Walker, taken_in
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.order import in_time, is_backward, is_storage, selects
from probe_diagnosis.timeline.timeline import Timeline
from probe_diagnosis.timeline.views import Basis, CallView, Difference, DifferenceKind, is_module

KEPT = 5
"""Largest number of further causes that are kept of a rank."""


@dataclass(frozen=True, slots=True)
class Searched:
    """Result of a search.

    Attributes:
        first: The ops that no other difference explains, earliest first.
        further: Ops behind them whose own inputs agree and whose outputs do not, earliest first.
        grown: The first ops whose values differ by more than rounding explains, on ranks on which or for
            which no op could be named; earliest first.
        behind: For each rank, the calls whose values differ behind the one that was named.
        vanished: Ops within modules whose own outputs agree, so that the difference had no effect.
        senders: For the communication calls that brought a rank values that differ, by rank and key: the
            ranks that sent them.
    """

    first: list[Node]
    further: list[Node]
    grown: list[Node]
    behind: dict[int, list[str]]
    vanished: list[Node]
    senders: Mapping[tuple[int, str], tuple[int, ...]] = field(default_factory=dict)


def search_timelines(timelines: Iterable[Timeline]) -> Searched:
    """Search the timelines of all ranks of one step."""
    return search({timeline.rank: timeline.columns for timeline in timelines})


def search(
    ranks: Mapping[int, Sequence[CallView]],
    known: Iterable[tuple[float, float]] = (),
    pasts: Mapping[int, Past] = MappingProxyType({}),
    carried: Mapping[int, Iterable[tuple[float, float]]] = MappingProxyType({}),
) -> Searched:
    """Search all ranks for the ops where they diverge.

    Args:
        ranks: The ops of each rank, in the order of its record.
        known: Distances and scales of values whose difference is known to be rounding.
        carried: The same of parameters and states that an optimizer changed in earlier steps, for each rank.
            What forward calls compute from these alone is known as well.
        pasts: What earlier steps explain, for each rank of which it is known.
    """
    columns = {
        rank: calls if isinstance(calls, CallColumns) else CallColumns.of(calls)
        for rank, calls in sorted(ranks.items())
    }
    walkers = {
        rank: Walker(rank, calls, in_time(calls), {*known}, pasts.get(rank, Past()).copy())
        for rank, calls in columns.items()
    }
    for rank, values in carried.items():
        walkers[rank].carried.update(values)
        walkers[rank].known.update(values)
    if known:
        for walker in walkers.values():
            walker.know_all()
    meetings = Meetings(walkers)
    while any(walker.at < len(walker.order) for walker in walkers.values()):
        for walker in walkers.values():
            order, communication = walker.order, walker.calls.communication
            while walker.at < len(order) and (number := order[walker.at]) not in communication:
                _compute(walker, number)
                walker.step()
        meetings.settle()
    return Searched(
        _ordered(node for walker in walkers.values() for node in walker.nodes),
        _ordered(node for walker in walkers.values() for node in walker.further[:KEPT]),
        _ordered(one.grown for one in walkers.values() if one.grown is not None and not one.past.named),
        {rank: walker.behind for rank, walker in walkers.items()},
        _ordered(node for walker in walkers.values() for node in walker.vanished),
        meetings.senders,
    )


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.layer, node.place, node.rank))


def _compute(walker: Walker, number: int) -> None:
    """Examine a call that is no communication, and report it if it is the first difference."""
    past, calls = walker.past, walker.calls
    walker.forgive(number)
    was_named = past.named
    walker.settle_gradients(number)
    largest = walker.differences(number)
    is_of_parameters = largest.is_of_parameters[number]
    if not is_of_parameters and walker.is_of_optimizer(number) and walker.passes_known(number):
        return
    if walker.continues_known(number):
        return
    taken, own, given = largest.taken[number], largest.own[number], largest.given[number]
    line = largest.given_lines[number]
    if is_of_parameters and own and walker.known:
        given, line = largest.without(number, walker.known)
    saved = past.worst if is_of_parameters else walker.saved_by(number, max(taken, own))
    introduces = (
        given > 1
        and calls.keys[number] not in walker.modules
        and _introduces(walker, line, taken, saved, given)
    )
    _report(walker, number, taken, given, line if introduces else None)
    if is_of_parameters:
        walker.gradients = max(walker.gradients or 0.0, given)
    if given > 1:
        walker.modules.update(calls.within[number])
    if was_named and max(taken, given) > 1:
        walker.behind.append(calls.keys[number])
    if largest.returns_in_region[number]:
        _keep_replaced(walker, number, taken)
    _look_for_growth(walker, number, given)
    past.worst = max(past.worst, taken, own)
    if own and not past.made and calls.has_other_argument[number]:
        past.made = calls.keys[number] if other_argument(calls[number]) is not None else ""
    past.lacking += largest.lacking[number]


def _report(walker: Walker, number: int, taken: float, given: float, line: int | None) -> None:
    """Report a call that introduces a difference in a line, or that receives one out of nowhere."""
    past = walker.past
    if line is not None:
        call, value = walker.calls[number], walker.value(line)
        if walker.may_name(number):
            walker.name(number, _reason_of(call, value, taken, given, past))
        elif taken <= 1 and _is_witness_of_itself(call, value):
            walker.further.append(walker.node(number, _reason_of(call, value, taken, given, past)))
    elif taken > 1 and walker.may_name(number):
        received = walker.value(walker.largest.taken_lines[number])
        if taken > received.jump * past.worst:
            walker.name(number, taken_in(received, taken, past))


def _keep_replaced(walker: Walker, number: int, taken: float) -> None:
    """Keep the outputs of a call that does not line up, in case that another call takes them in."""
    call = walker.calls[number]
    walker.replaced += [
        walker.node(number, _in_place_of(call, value, taken, walker.past))
        for value in call.outputs()
        if value.is_in_region
    ]


def _introduces(walker: Walker, line: int, taken: float, saved: float, given: float) -> bool:
    """Return True if an output differs by far more than all that it is computed from.

    Statistics of inputs do not show all of a difference: one that is orthogonal to a tensor, of the relative
    size d, changes its norm by d^2 / 2 only. So inputs whose statistics differ by s may differ by sqrt(2 s).
    Those of integers and booleans may be equal although a choice that rounding decides is another one. An
    argument that differs explains the output without the inputs.

    Args:
        walker: The rank.
        line: The line of the output in the table of values.
        taken: The largest difference of the inputs, as a multiple of rounding.
        saved: The same of what the forward call of a backward call received or returned.
        given: The same of the outputs.
    """
    fields = walker.calls.table.lines[line]
    is_by_statistics, jump = fields["basis"] == Basis.STATISTICS, float(fields["jump"])
    is_exact = not fields["noise"] and isfinite(fields["distance"])
    before, noise = max(taken, saved), walker.past.noise
    is_open = is_by_statistics and not walker.calls.has_other_argument[walker.number]
    hidden = sqrt(2 * before / noise) if is_open and noise and isfinite(before) else 0.0
    may_be_chosen = taken or (is_by_statistics and walker.past.worst and walker.receives_tensors())
    return bool(
        given > (jump if is_open else 1)
        and given > max(jump * before, hidden)
        and not (may_be_chosen and is_exact)
        and not (saved and selects(walker.calls.keys[walker.number]))
    )


def other_argument(op: CallView) -> Difference | None:
    """Return the first argument that an op was called with in one run, and with another value in the other.

    An argument that only one run gives may be the usual one and does not count.
    """
    return next((one for one in differing_arguments(op) if one.kind is not DifferenceKind.LONE), None)


def differing_arguments(op: CallView) -> list[Difference]:
    """Return the arguments that differ, except for those that say where to store the result."""
    if op.is_shifted:
        return []
    return [one for one in op.arguments() if one.times(one.scale, one.noise) > 1 and not is_storage(one.row)]


def _in_place_of(op: CallView, output: Difference, taken: float, past: Past) -> Because:
    """Return the reason for naming a call that does not line up, if what it returns is taken in."""
    argument = None if op.golden else first_differing(op.arguments(), 0.0)
    cause = Cause.INTRODUCED if argument is None else Cause.ARGUMENT
    return Because(cause, output, inputs_of(op, taken), argument, past.lacking, replaces=op.golden)


def _look_for_growth(walker: Walker, number: int, given: float) -> None:
    """Keep the first call with values that differ by more than rounding explains.

    A value that is small beside what its call took in, such as a difference of large numbers, is rounding;
    the next call that takes it in and returns a value of that size is the first.

    Args:
        walker: The rank.
        number: The call.
        given: The largest difference of its outputs beside the largest input, as a multiple of rounding.
    """
    largest, known = walker.largest, walker.known
    own, taken, line = largest.own[number], largest.taken[number], largest.taken_lines[number]
    if walker.grown is None and taken > 1 and known:
        taken, line = largest.without(number, known, of_inputs=True)
    if given <= 1:
        if own and largest.returns_other[number]:
            known.update(walker.differing(number, outputs_only=True))
        own = 0.0
    times, line = (own, largest.own_lines[number]) if own >= taken else (taken, line)
    if walker.grown is None and times > 1:
        op = walker.calls[number]
        because = Because(
            Cause.GROWN, walker.value(line), inputs_of(op, taken), None, walker.past.lacking, given,
            times=times,
        )  # fmt: skip
        walker.grown = walker.node(number, because)


def _is_witness_of_itself(op: CallView, output: Difference) -> bool:
    """Return True if a call depends on nothing but what was compared of it.

    Modules hold parameters and states, and backward calls read what the forward pass left behind. Statistics
    that agree do not show that behind a difference the values do.
    """
    if output.by == Basis.STATISTICS:
        return False
    inputs = inputs_of(op, 0.0)
    is_call = not is_module(op.op) and not is_backward(op.op)
    return is_call and inputs.compared > 0 and not inputs.lacking and not op.is_shifted


def _reason_of(op: CallView, output: Difference, taken: float, given: float, past: Past) -> Because:
    """Return the reason why an op whose own outputs differ is reported.

    Args:
        op: The op.
        output: Its output that differs most.
        taken: The largest difference of its inputs, as a multiple of rounding.
        given: The largest difference of its outputs, as a multiple of rounding.
        past: The history of the rank.
    """
    inputs = inputs_of(op, taken)
    if is_gradient(op.op):
        return Because(Cause.GRADIENT, output, inputs, earlier=past.lacking, times=given, made=past.made)
    earlier = 0.0 if past.named else past.worst
    argument = first_differing(op.arguments(), output.jump * max(earlier, taken))
    if output.breaks and not inputs.holds_rare:
        return Because(Cause.NOT_FINITE, output, inputs, argument, past.lacking, times=given)
    cause = Cause.INTRODUCED if argument is None else Cause.ARGUMENT
    return Because(cause, output, inputs, argument, past.lacking, times=given)
