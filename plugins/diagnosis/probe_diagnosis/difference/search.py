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
from dataclasses import dataclass
from functools import cache

from probe_core.files.packaged import load_yaml
from probe_core.store.names import is_gradient
from probe_diagnosis.difference.facts import DIFFERS, UNJUDGED, Apart, OpFacts, is_module
from probe_diagnosis.difference.meetings import Meetings
from probe_diagnosis.difference.reasons import Because, Cause, first_differing, inputs_of
from probe_diagnosis.difference.walking import Node, Past, Walker, taken_in, worst_of

KEPT = 5
"""Largest number of further causes that are kept of a rank."""


def first_differences(ranks: Mapping[int, Sequence[OpFacts]]) -> list[Node]:
    """Return the ops that no other difference explains, earliest first.

    Args:
        ranks: The ops of each rank, in the order of its record.
    """
    return search(ranks).first


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
    """

    first: list[Node]
    further: list[Node]
    grown: list[Node]
    behind: dict[int, list[str]]
    vanished: list[Node]


def search(ranks: Mapping[int, Sequence[OpFacts]], known: Iterable[tuple[float, float]] = ()) -> Searched:
    """Search all ranks for the ops where they diverge.

    Args:
        ranks: The ops of each rank, in the order of its record.
        known: Distances and scales of values whose difference is known to be rounding.
    """
    walkers = {rank: Walker(rank, in_time(ops), known=set(known)) for rank, ops in sorted(ranks.items())}
    for walker in walkers.values():
        walker.last = max(
            (n for n, op in enumerate(walker.ops) if is_backward(op.op)), default=len(walker.ops)
        )
        if known:
            walker.know_all()
    meetings = Meetings(walkers)
    while any(walker.op is not None for walker in walkers.values()):
        for walker in walkers.values():
            while (op := walker.op) is not None and op.call is None:
                _compute(walker, op)
                walker.step()
        meetings.settle()
    return Searched(
        _ordered(node for walker in walkers.values() for node in walker.nodes),
        _ordered(node for walker in walkers.values() for node in walker.further[:KEPT]),
        _ordered(one.grown for one in walkers.values() if one.grown is not None and not one.past.named),
        {rank: walker.behind for rank, walker in walkers.items()},
        _ordered(node for walker in walkers.values() for node in walker.vanished),
    )


def _ordered(nodes: Iterable[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.layer, node.place, node.rank))


def in_time(ops: Iterable[OpFacts]) -> list[OpFacts]:
    """Return the ops in the order of their effects; gradients of parameters are recorded too early.

    They are complete after the last backward call, and before what an optimizer makes of them.
    """
    gradients: list[OpFacts] = []
    others: list[OpFacts] = []
    for op in _modules_last(list(ops)):
        (gradients if is_gradient(op.op) else others).append(op)
    end = len(others) - 1
    last = next((n for n in range(end, -1, -1) if is_backward(others[n].op)), end)
    return [*others[: last + 1], *gradients, *others[last + 1 :]]


def is_backward(key: str) -> bool:
    """Return True for a call of the backward pass."""
    return "backward" in key.split(".")


def _modules_last(ops: list[OpFacts]) -> list[OpFacts]:
    """Return the ops with each module after the calls within it, and inner modules before outer ones."""
    ends: dict[str, int] = {}
    for place, op in enumerate(ops):
        for module in op.within:
            ends[module] = place
    if not ends:
        return ops

    def order(place: int) -> tuple[int, int]:
        end = ends.get(ops[place].op, place)
        return (end, len(ops) - place) if end > place else (place, 0)

    return [ops[place] for place in sorted(range(len(ops)), key=order)]


@cache
def _apis() -> dict[str, frozenset[str]]:
    """Return the sections of ``scales.yaml``: names of APIs by what they do to values."""
    return {section: frozenset(names) for section, names in load_yaml(__package__, "scales.yaml").items()}


def _selects(key: str) -> bool:
    """Return True for a call of an API that selects elements by their size."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-3].strip("_") in _apis()["selects"]


def is_move(key: str) -> bool:
    """Return True for a call that returns what it takes in, in another arrangement or a part of it."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-1] == "forward" and parts[-3].strip("_") in _apis()["moves"]


def is_arranging(key: str) -> bool:
    """Return True for a call that returns elements that it takes in, in another order or number."""
    parts = key.split(".")
    return is_move(key) or (len(parts) > 3 and parts[-3].strip("_") in _apis()["arranges"])


def is_storage(row: str) -> bool:
    """Return True for an argument that says where a result is stored, and changes none of its values."""
    return row.rpartition(".")[2] in _apis()["storage"]


def divides(key: str) -> bool:
    """Return True for a call that divides element by element."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-1] == "forward" and parts[-3].strip("_") in _apis()["divides"]


def _has_own_scale(key: str) -> bool:
    """Return True if the outputs of an op do not grow with its inputs."""
    parts = key.split(".")
    if is_module(key):
        return not is_backward(key)
    return len(parts) > 3 and parts[-1] == "forward" and parts[-3].strip("_") in _apis()["own_scale"]


def _scale_of(op: OpFacts, is_of_parameters: bool) -> float:
    """Return the scale that the outputs of an op are measured against besides their own; 0 for none.

    The gradients of a module's parameters are measured against the largest of them. One that is zero in
    theory, such as that of a bias in front of a normalisation, holds nothing but rounding. So does it where a
    backward call returns it beside others. Integers among the inputs, such as positions, have no rounding
    that they could pass on.
    """
    if is_of_parameters:
        return max((value.scale for value in op.values), default=0.0)
    if _has_own_scale(op.op):
        return 0.0
    if is_backward(op.op):
        return max((value.scale for value in op.values if value.is_float), default=0.0)
    return max((value.scale for value in op.inputs() if value.is_float), default=0.0)


def _compute(walker: Walker, op: OpFacts) -> None:
    """Examine an op that is no communication call, and report it if it is the first difference."""
    past = walker.past
    walker.forgive(op)
    was_named = past.named
    outputs = list(op.outputs())
    past.noise = max([past.noise, *[value.noise for value in op.values if not value.is_scalar]])
    is_of_parameters = is_gradient(op.op)
    if not is_of_parameters and walker.is_of_optimizer(op) and walker.passes_known(op):
        return
    scale = _scale_of(op, is_of_parameters)
    taken, worst_input = worst_of(op.inputs(), past.noise)
    own, worst_own = worst_of(outputs, past.noise)  # later ops take the outputs in, so far apart
    if is_of_parameters:
        outputs = [value for value in outputs if (value.distance, value.scale) not in walker.known]
    given, worst_output = worst_of(outputs, past.noise, scale) if own else (own, worst_own)
    saved = walker.saved_by(op.op, max(taken, own))
    introduces = (
        worst_output is not None
        and given > (worst_output.jump if worst_output.by == "statistics" else 1)
        and given > worst_output.jump * max(taken, saved)
        and not (taken and worst_output.is_exact)
        and not (saved and _selects(op.op))
    )
    if walker.may_name(op):
        if introduces:
            assert worst_output is not None
            walker.name(op, _reason_of(op, worst_output, taken, given, past))
        elif worst_input is not None and taken > 1 and taken > worst_input.jump * past.worst:
            walker.name(op, taken_in(worst_input, taken, past))
    elif introduces and taken <= 1 and worst_output is not None and _is_witness_of_itself(op, worst_output):
        walker.further.append(walker.node(op, _reason_of(op, worst_output, taken, given, past)))
    if was_named and max(taken, given) > 1:
        walker.behind.append(op.op)
    walker.replaced += [
        walker.node(op, _in_place_of(op, value, taken, past)) for value in op.outputs() if value.is_in_region
    ]
    _look_for_growth(walker, op, (own, worst_own), given)
    past.worst = max(past.worst, taken, own)
    if own and not past.made and other_argument(op) is not None:
        past.made = op.op
    past.lacking += op.lacking + sum([v.state == UNJUDGED and not v.is_scalar for v in op.values])


def other_argument(op: OpFacts) -> Apart | None:
    """Return the first argument that an op was called with in one run, and with another value in the other.

    An argument that only one run gives may be the usual one; one that says where to store the result changes
    none of its values. Neither counts.
    """
    given = (value for value in op.arguments() if not is_storage(value.row) and "nothing" not in value.why)
    return None if op.is_shifted else first_differing(given, 0.0)


def _in_place_of(op: OpFacts, output: Apart, taken: float, past: Past) -> Because:
    """Return the reason for naming a call that does not line up, if what it returns is taken in."""
    argument = None if op.golden else first_differing(op.arguments(), 0.0)
    cause = Cause.INTRODUCED if argument is None else Cause.ARGUMENT
    return Because(cause, output, inputs_of(op, taken), argument, past.lacking, replaces=op.golden)


def _look_for_growth(walker: Walker, op: OpFacts, own: tuple[float, Apart | None], given: float) -> None:
    """Keep the first op with values that differ by more than rounding explains.

    A value that is small beside what its call took in, such as a difference of large numbers, is rounding;
    the next call that takes it in and returns a value of that size is the first.

    Args:
        walker: The rank.
        op: The op.
        own: The largest difference of its outputs, as a multiple of rounding, and the output that has it.
        given: The same beside the largest input.
    """
    known = walker.known
    inputs = [] if walker.grown else [v for v in op.inputs() if (v.distance, v.scale) not in known]
    if given <= 1:
        known.update((one.distance, one.scale) for one in op.outputs() if one.state == DIFFERS)
        own = 0.0, None
    if walker.grown is not None:
        return
    taken = worst_of(inputs, walker.past.noise)
    times, worst = own if own[0] >= taken[0] else taken
    if times > 1 and worst is not None:
        because = Because(
            Cause.GROWN, worst, inputs_of(op, taken[0]), None, walker.past.lacking, given, times=times
        )
        walker.grown = walker.node(op, because)


def _is_witness_of_itself(op: OpFacts, output: Apart) -> bool:
    """Return True if a call depends on nothing but what was compared of it.

    Modules hold parameters and states, and backward calls read what the forward pass left behind. Statistics
    that agree do not show that behind a difference the values do.
    """
    if output.by == "statistics":
        return False
    inputs = inputs_of(op, 0.0)
    is_call = not is_module(op.op) and not is_backward(op.op)
    return is_call and inputs.compared > 0 and not inputs.lacking and not op.is_shifted


def _reason_of(op: OpFacts, output: Apart, taken: float, given: float, past: Past) -> Because:
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
