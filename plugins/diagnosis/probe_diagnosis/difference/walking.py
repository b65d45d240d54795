"""The walk of a rank through its calls: its history so far and its reported differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe_diagnosis.collectives.calls import CommunicationCall
from probe_diagnosis.difference.largest import LargestDifferences
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import Cause, DivergenceReason
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.order import OPTIMIZER, is_backward
from probe_diagnosis.timeline.value_table import DIFFERS_CODE, IS_SCALAR, IS_SOURCE, measure_multiples
from probe_diagnosis.timeline.views import Basis, CallView, Difference


@dataclass(frozen=True, slots=True)
class Node:
    """An op where the runs diverge.

    Attributes:
        rank: The rank that ran the op.
        facts: The op.
        because: The reason.
        layer: Number of communication calls before the op.
        place: Number of ops between the last of these communication calls and the op.
    """

    rank: int
    facts: CallView
    because: DivergenceReason
    layer: int
    place: int

    @property
    def why(self) -> str:
        """The reason, a clause whose subject is the op."""
        return build_statement(self.because).text


@dataclass(slots=True)
class RankHistory:
    """The history of a rank up to an op.

    Attributes:
        worst: The largest difference so far, as a multiple of rounding.
        noise: The coarsest rounding so far.
        named: True if a difference was reported.
        layer: Number of communication calls so far.
        lacking: Number of tensors so far that were not compared.
        changed_call: The first call so far with a different argument whose outputs differ, even slightly; empty
            if there is none.
    """

    worst: float = 0.0
    noise: float = 0.0
    named: bool = False
    layer: int = 0
    lacking: int = 0
    changed_call: str = ""

    def merge(self, other_history: RankHistory) -> None:
        """Merge the history of another rank into this one."""
        self.worst = max(self.worst, other_history.worst)
        self.noise = max(self.noise, other_history.noise)
        self.named = self.named or other_history.named
        self.layer = max(self.layer, other_history.layer)
        self.lacking = max(self.lacking, other_history.lacking)
        self.changed_call = self.changed_call or other_history.changed_call

    def copy(self) -> RankHistory:
        """Return a copy to send to another rank."""
        return RankHistory(self.worst, self.noise, self.named, self.layer, self.lacking, self.changed_call)


@dataclass(slots=True)
class Walker:
    """The walk of a rank through its calls. All differences are multiples of rounding.

    Attributes:
        rank: The number of the rank.
        calls: The calls of the rank.
        order: The numbers of the calls in the order of their effects.
        known_rounding: Distances and scales of values that differ only by rounding, such as gradients that are
            small relative to the inputs of their calls. A parameter with such a gradient is not reported.
        past: The history of the rank.
        index: Index of the next call in ``order``.
        place: Number of calls since the last communication call.
        nodes: The reported differences.
        counts: Number of calls so far of each API in each group.
        further: Further causes downstream of the reported differences, with equal inputs and different outputs.
        grown: The first call with values that differ by more than rounding explains.
        downstream: The calls with differing values downstream of the first reported call.
        worst_before_report: The largest difference before the call that was reported last.
        saved: The largest difference of the inputs and outputs of each forward call, which its backward call
            may read.
        vanished: Reported differences that the modules around them did not pass on.
        replaced: Calls that do not line up and whose outputs differ, in case another call receives the outputs.
        worst_at_entry: The largest difference before the first call within each module.
        worst_gradient: The largest difference of gradients of parameters, each relative to the largest gradient
            of its module; None if there was no such gradient since the last step of an optimizer.
        explained_modules: Modules that contain a call whose outputs differ, which explains their own differences.
        carried_rounding: Distances and scales of parameters that differ by the rounding of an optimizer, and of
            values computed from them.
        last_backward_index: Index in ``order`` of the last call of the backward pass.
        largest: The largest differences of each call.
        is_backward: True for calls of the backward pass, by number.
        explained_worst: The largest difference that earlier steps explain.
    """

    rank: int
    calls: CallColumns
    order: Sequence[int]
    known_rounding: set[tuple[float, float]] = field(default_factory=set)
    past: RankHistory = field(default_factory=RankHistory)
    index: int = 0
    place: int = 0
    nodes: list[Node] = field(default_factory=list)
    counts: dict[object, int] = field(default_factory=dict)
    further: list[Node] = field(default_factory=list)
    grown: Node | None = None
    downstream: list[str] = field(default_factory=list)
    worst_before_report: float = 0.0
    saved: dict[str, float] = field(default_factory=dict)
    vanished: list[Node] = field(default_factory=list)
    replaced: list[Node] = field(default_factory=list)
    worst_at_entry: dict[str, float] = field(default_factory=dict)
    worst_gradient: float | None = None
    explained_modules: set[str] = field(default_factory=set)
    carried_rounding: set[tuple[float, float]] = field(default_factory=set)
    last_backward_index: int = field(init=False)
    largest: LargestDifferences = field(init=False)
    is_backward: Sequence[bool] = field(init=False)
    explained_worst: float = field(init=False)

    def __post_init__(self) -> None:
        self.explained_worst = self.past.worst
        self.is_backward = [is_backward(key) for key in self.calls.keys]
        backward = (place for place, number in enumerate(self.order) if self.is_backward[number])
        self.last_backward_index = max(backward, default=len(self.order))
        self.largest = LargestDifferences(self.calls, self.order, self.past.noise)

    @property
    def op(self) -> CallView | None:
        """The next call; None at the end."""
        return self.calls[self.order[self.index]] if self.index < len(self.order) else None

    @property
    def number(self) -> int:
        """The number of the next call."""
        return self.order[self.index]

    def iterate_communication(self) -> Iterator[CommunicationCall]:
        """Yield the remaining communication calls, starting at the next call."""
        calls = self.calls.communication
        return (calls[number] for number in self.order[self.index :] if number in calls)

    def step(self) -> None:
        """Go on to the next call."""
        self.index += 1
        self.place += 1

    def update_differences(self, number: int) -> LargestDifferences:
        """Record the coarsest rounding up to a call, and return the largest differences with this rounding."""
        if self.past.noise > self.largest.noise[number]:
            self.largest = LargestDifferences(self.calls, self.order, self.past.noise)
        self.past.noise = self.largest.noise[number]
        return self.largest

    def report_call(self, number: int, because: DivergenceReason) -> None:
        """Report a call as the first difference, in place of a reported module around it.

        If the call receives an output of a call that does not line up, the latter is reported instead.
        """
        node = self.create_node(number, because)
        source = self._find_source(because) or self._take_vanished(number, because)
        if source is not None:
            node = source
            self.downstream.append(self.calls.keys[number])
        if not self.past.named:
            self.nodes.append(node)
            self.past.named = True
            self.worst_before_report = self.past.worst
        elif self._is_inside_last_reported(number):
            self.nodes[-1] = node

    def create_node(self, number: int, because: DivergenceReason) -> Node:
        """Return a call at the current place, with the reason for reporting it."""
        return Node(self.rank, self.calls[number], because, self.past.layer, self.place)

    def get_value(self, line: int) -> Difference:
        """Return the value of a line of the next call."""
        return self.calls[self.number].values[line - self.calls.starts[self.number]]

    def receives_tensors(self) -> bool:
        """Return True if the next call has a tensor among its inputs."""
        lines = self.calls.lines(self.number)
        rows = self.calls.table.lines[lines.start : lines.stop]
        return bool((IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)).any())

    def is_of_optimizer(self, number: int) -> bool:
        """Return True for a call after the backward pass, or within the step of an optimizer."""
        return self.index > self.last_backward_index or OPTIMIZER in self.calls.within[number]

    def settle_gradients(self, number: int) -> None:
        """Before the step of an optimizer, forget all differences except those of the gradients that it receives."""
        if self.worst_gradient is None or self.past.named or self.largest.is_of_parameters[number]:
            return
        if self.is_of_optimizer(number):
            self.past.worst, self.worst_gradient = max(self.worst_gradient, self.explained_worst), None

    def passes_known(self, number: int) -> bool:
        """Return True if a call receives known rounding; the differences of its outputs then become known rounding.

        For example, an optimizer that divides a gradient by its magnitude amplifies the rounding of a small
        gradient to the size of an update, and stores it in its state.
        """
        if not self.known_rounding or self.calls.has_other_argument[number]:
            return False
        differing = set(self.collect_differing_values(number))
        if differing.isdisjoint(self.known_rounding):
            return False
        self.known_rounding |= differing
        return True

    def continues_known(self, number: int) -> bool:
        """Return True if all differing inputs of a forward call are carried rounding; its outputs then are as well."""
        if not self.carried_rounding or self.largest.taken[number] <= 1 or self.calls.has_other_argument[number]:
            return False
        if self.is_backward[number] or self.is_of_optimizer(number):
            return False
        beyond = self.collect_differing_inputs(number)
        if not beyond <= self.carried_rounding:
            return False
        self.carried_rounding.update(self.collect_differing_values(number, outputs_only=True))
        return True

    def collect_differing_inputs(self, number: int) -> set[tuple[float, float]]:
        """Return the distances and scales of the input tensors of a call that differ by more than rounding."""
        lines = self.calls.lines(number)
        rows = self.calls.table.lines[lines.start : lines.stop]
        is_input = IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)
        is_beyond = is_input & (measure_multiples(rows, rows["scale"], self.past.noise) > 1)
        return {*zip(rows["distance"][is_beyond].tolist(), rows["scale"][is_beyond].tolist())}

    def collect_differing_values(self, number: int, *, outputs_only: bool = False) -> list[tuple[float, float]]:
        """Return the distances and scales of the values of a call that differ."""
        table, lines = self.calls.table, self.calls.lines(number)
        rows = table.lines[lines.start : lines.stop]
        is_selected = rows["state"] == DIFFERS_CODE
        if outputs_only:
            is_selected &= ~IS_SOURCE[rows["side"]]
        return list(zip(rows["distance"][is_selected].tolist(), rows["scale"][is_selected].tolist()))

    def propagate_known(self) -> None:
        """Add the differing values of all calls that use known rounding to the known rounding.

        All calls are visited until nothing changes, because the states of an optimizer change before they are
        combined with a gradient.
        """
        numbers = np.flatnonzero(self.calls.has_any(self.calls.table.differs)).tolist()
        values_by_call = [set(self.collect_differing_values(number)) for number in numbers]
        count = -1
        while count != len(self.known_rounding):
            count = len(self.known_rounding)
            for values in values_by_call:
                if not values.isdisjoint(self.known_rounding):
                    self.known_rounding |= values

    def track_saved(self, number: int, worst: float) -> float:
        """Return the largest difference that a backward call may read from its forward call; 0 for other calls.

        Args:
            number: The number of the call; ``worst`` of a forward call is saved for its backward call.
            worst: The largest difference of the inputs and outputs, as a multiple of rounding.
        """
        key = self.calls.keys[number]
        if self.is_backward[number]:
            return self.saved.get(key.replace(".backward", ".forward"), 0.0)
        if worst:
            self.saved[key] = worst
        return 0.0

    def _find_source(self, because: DivergenceReason) -> Node | None:
        """Return the call that does not line up and whose output an op receives; None if there is none."""
        if because.cause is not Cause.TAKEN_IN:
            return None
        value = because.value
        for node in reversed(self.replaced):
            returned = node.because.value
            if (returned.distance, returned.scale, returned.why) == (value.distance, value.scale, value.why):
                return node
        return None

    def _take_vanished(self, number: int, because: DivergenceReason) -> Node | None:
        """Return the withdrawn difference in the module around parameters whose gradients differ, or None.

        The outputs of a module do not depend on all values on which the gradients of its parameters depend.
        """
        if because.cause is not Cause.GRADIENT:
            return None
        path = self.calls.keys[number].split(".")[1:-2]
        for node in self.vanished:
            module_path = node.facts.within[0].split(".")[1:-3]
            if path[: len(module_path)] == module_path:
                self.vanished.remove(node)
                return node
        return None

    def withdraw_vanished(self, number: int) -> None:
        """Withdraw the differences that were reported within a module whose own outputs agree."""
        within = self.calls.within[number]
        for module in within:
            if module not in self.worst_at_entry:
                self.worst_at_entry[module] = self.past.worst
        if not self.largest.agrees[number]:
            return
        key = self.calls.keys[number]
        if not self.past.named:  # the difference that grew within the module has vanished
            if self.grown is not None and key in self.grown.facts.within and can_show_gone(self.grown):
                self.grown = None
                self.past.worst = self.worst_at_entry.get(key, self.past.worst)
            return
        if not (self.nodes and key in self.nodes[-1].facts.within):
            return
        self.vanished.append(self.nodes.pop())
        self.further = [node for node in self.further if key not in node.facts.within]
        self.downstream.clear()
        if self.grown is not None and key in self.grown.facts.within:
            self.grown = None
        self.past.named = False
        self.past.worst = self.worst_before_report

    def can_report(self, number: int) -> bool:
        """Return True if a call may be reported: the first one, or one within a module that was reported."""
        return not self.past.named or self._is_inside_last_reported(number)

    def _is_inside_last_reported(self, number: int) -> bool:
        """Return True for a call within the module that was reported last; some recorders write modules first."""
        return bool(self.nodes) and self.nodes[-1].facts.op in self.calls.within[number]


def is_large(value: Difference) -> bool:
    """Return True for a difference so large that agreeing values downstream show that it vanished."""
    return value.times(value.scale, value.noise) >= limits().gone


def can_show_gone(node: Node) -> bool:
    """Return True if agreeing values downstream of a difference show that it had no effect.

    A small difference may be invisible in statistics after larger values are added to it; a large difference is not.
    """
    value = node.because.value
    return value.by != Basis.STATISTICS or is_large(value)


def find_worst(values: Iterable[Difference], noise: float, scale: float = 0.0) -> tuple[float, Difference | None]:
    """Return the largest difference among values, as a multiple of rounding, and the value with this difference.

    Args:
        values: The values.
        noise: The coarsest rounding so far.
        scale: The smallest scale by which differences are divided.

    Returns:
        0 and None if nothing differs.
    """
    largest, worst = 0.0, None
    for value in values:
        times = value.times(value.scale if value.scale > scale else scale, noise)
        if times > largest:
            largest, worst = times, value
    return largest, worst


def explain_input(value: Difference, input_distance: float, past: RankHistory) -> DivergenceReason:
    """Return the reason for reporting an op whose input differs."""
    return DivergenceReason(Cause.TAKEN_IN, value, earlier=past.lacking, largest_multiple=input_distance)
