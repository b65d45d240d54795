"""A rank on its way through its ops: what it has met so far, and what was reported of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe_diagnosis.collectives.calls import CommunicationCall
from probe_diagnosis.difference.largest import LargestDifferences
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
        rank: The rank that ran it.
        facts: The op.
        because: The reason.
        layer: Number of communication calls before it.
        place: Number of ops between the last of these and it.
    """

    rank: int
    facts: CallView
    because: DivergenceReason
    layer: int
    place: int

    @property
    def why(self) -> str:
        """The reason, a clause whose subject is the op."""
        return self.because.statement.text


@dataclass(slots=True)
class RankHistory:
    """History of a rank up to some op.

    Attributes:
        worst: The largest difference so far, as a multiple of rounding.
        noise: The coarsest rounding so far.
        named: True if a difference was reported.
        layer: Number of communication calls so far.
        lacking: Number of tensors so far that were not compared.
        made: The first call so far with another argument and other values, however near; empty for none.
    """

    worst: float = 0.0
    noise: float = 0.0
    named: bool = False
    layer: int = 0
    lacking: int = 0
    made: str = ""

    def merge(self, other_history: RankHistory) -> None:
        """Merge another rank's history into this one."""
        self.worst = max(self.worst, other_history.worst)
        self.noise = max(self.noise, other_history.noise)
        self.named = self.named or other_history.named
        self.layer = max(self.layer, other_history.layer)
        self.lacking = max(self.lacking, other_history.lacking)
        self.made = self.made or other_history.made

    def copy(self) -> RankHistory:
        """Return a copy, to be sent to another rank."""
        return RankHistory(self.worst, self.noise, self.named, self.layer, self.lacking, self.made)


@dataclass(slots=True)
class Walker:
    """A rank on its way through its calls.

    Attributes:
        rank: Its number.
        calls: Its calls.
        order: The numbers of the calls in the order of their effects.
        past: Its history.
        at: Place of its next call in ``order``.
        place: Number of calls since the last communication call.
        nodes: The differences that were reported.
        counts: Number of calls so far of each API in each group.
        further: Causes behind those that were reported, by what their calls took in and returned.
        grown: The first call with values that differ by more than rounding explains.
        behind: The calls whose values differ behind the first that was reported.
        before: The largest difference before the call that was reported last.
        saved: The largest difference of what each forward call took in or returned; its backward call may
            read that.
        vanished: Differences that were reported, and that no module around them passed on.
        replaced: Calls that do not line up and whose outputs differ, in case that another call takes them in.
        entered: The largest difference before the first call within each module.
        known: Distances and scales of values that differ by rounding, such as gradients that are small beside
            what their calls took in; a parameter whose gradient is the same value is not reported.
        gradients: The largest difference of gradients of parameters, each beside the largest gradient of its
            module; None if none was met since the last step of an optimizer.
        modules: Modules with a call whose outputs differ, which explains their own.
        carried: Distances and scales of parameters that differ by an optimizer's rounding, and of what is
            computed from them.
        explained: The largest difference that earlier steps explain.
        last: Place in ``order`` of the last call of the backward pass.
    """

    rank: int
    calls: CallColumns
    order: Sequence[int]
    known: set[tuple[float, float]] = field(default_factory=set)
    past: RankHistory = field(default_factory=RankHistory)
    at: int = 0
    place: int = 0
    nodes: list[Node] = field(default_factory=list)
    counts: dict[object, int] = field(default_factory=dict)
    further: list[Node] = field(default_factory=list)
    grown: Node | None = None
    behind: list[str] = field(default_factory=list)
    before: float = 0.0
    saved: dict[str, float] = field(default_factory=dict)
    vanished: list[Node] = field(default_factory=list)
    replaced: list[Node] = field(default_factory=list)
    entered: dict[str, float] = field(default_factory=dict)
    gradients: float | None = None
    modules: set[str] = field(default_factory=set)
    carried: set[tuple[float, float]] = field(default_factory=set)
    last: int = field(init=False)
    largest: LargestDifferences = field(init=False)
    is_backward: Sequence[bool] = field(init=False)
    explained: float = field(init=False)

    def __post_init__(self) -> None:
        self.explained = self.past.worst
        self.is_backward = [is_backward(key) for key in self.calls.keys]
        backward = (place for place, number in enumerate(self.order) if self.is_backward[number])
        self.last = max(backward, default=len(self.order))
        self.largest = LargestDifferences(self.calls, self.order, self.past.noise)

    @property
    def op(self) -> CallView | None:
        """The next call; None at the end."""
        return self.calls[self.order[self.at]] if self.at < len(self.order) else None

    @property
    def number(self) -> int:
        """The number of the next call."""
        return self.order[self.at]

    def iterate_communication(self) -> Iterator[CommunicationCall]:
        """Yield the communication calls from the next call on."""
        calls = self.calls.communication
        return (calls[number] for number in self.order[self.at :] if number in calls)

    def step(self) -> None:
        """Go on to the next call."""
        self.at += 1
        self.place += 1

    def update_differences(self, number: int) -> LargestDifferences:
        """Return the largest differences with at least the rounding of the past; note that of a call."""
        if self.past.noise > self.largest.noise[number]:
            self.largest = LargestDifferences(self.calls, self.order, self.past.noise)
        self.past.noise = self.largest.noise[number]
        return self.largest

    def report_call(self, number: int, because: DivergenceReason) -> None:
        """Report a call as the first difference; it replaces a module around it that was reported.

        If it receives what a call that does not line up returned, that call is reported.
        """
        node = self.create_node(number, because)
        source = self._find_source(because) or self._take_vanished(number, because)
        if source is not None:
            node = source
            self.behind.append(self.calls.keys[number])
        if not self.past.named:
            self.nodes.append(node)
            self.past.named = True
            self.before = self.past.worst
        elif self._is_inside_last_reported(number):
            self.nodes[-1] = node

    def create_node(self, number: int, because: DivergenceReason) -> Node:
        """Return a call of this place, with the reason for naming it."""
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
        """Return True for a call behind the backward pass, or within the step of an optimizer."""
        return self.at > self.last or OPTIMIZER in self.calls.within[number]

    def settle_gradients(self, number: int) -> None:
        """Before an optimizer steps, forget all differences but those of the gradients that it receives."""
        if self.gradients is None or self.past.named or self.largest.is_of_parameters[number]:
            return
        if self.is_of_optimizer(number):
            self.past.worst, self.gradients = max(self.gradients, self.explained), None

    def passes_known(self, number: int) -> bool:
        """Return True if a call receives a difference that is known to be rounding; what it returns is, too.

        An optimizer that divides a gradient by its size makes an update of rounding, however small that is,
        and keeps it in its state.
        """
        if not self.known or self.calls.has_other_argument[number]:
            return False
        differing = set(self.collect_differing_values(number))
        if differing.isdisjoint(self.known):
            return False
        self.known |= differing
        return True

    def continues_known(self, number: int) -> bool:
        """Return True if all inputs that differ are carried rounding; what a forward call returns is, too."""
        if not self.carried or self.largest.taken[number] <= 1 or self.calls.has_other_argument[number]:
            return False
        if self.is_backward[number] or self.is_of_optimizer(number):
            return False
        beyond = self.collect_differing_inputs(number)
        if not beyond <= self.carried:
            return False
        self.carried.update(self.collect_differing_values(number, outputs_only=True))
        return True

    def collect_differing_inputs(self, number: int) -> set[tuple[float, float]]:
        """Return distance and scale of the input tensors of a call that differ by more than rounding."""
        lines = self.calls.lines(number)
        rows = self.calls.table.lines[lines.start : lines.stop]
        is_input = IS_SOURCE[rows["side"]] & (rows["flags"] & IS_SCALAR == 0)
        is_beyond = is_input & (measure_multiples(rows, rows["scale"], self.past.noise) > 1)
        return {*zip(rows["distance"][is_beyond].tolist(), rows["scale"][is_beyond].tolist())}

    def collect_differing_values(self, number: int, *, outputs_only: bool = False) -> list[tuple[float, float]]:
        """Return distance and scale of the values of a call that differ."""
        table, lines = self.calls.table, self.calls.lines(number)
        rows = table.lines[lines.start : lines.stop]
        wanted = rows["state"] == DIFFERS_CODE
        if outputs_only:
            wanted &= ~IS_SOURCE[rows["side"]]
        return list(zip(rows["distance"][wanted].tolist(), rows["scale"][wanted].tolist()))

    def propagate_known(self) -> None:
        """Add to what is known all that is computed with it.

        The states of an optimizer change before they meet a gradient.
        """
        numbers = np.flatnonzero(self.calls.has_any(self.calls.table.differs)).tolist()
        waiting = [set(self.collect_differing_values(number)) for number in numbers]
        count = -1
        while count != len(self.known):
            count = len(self.known)
            for values in waiting:
                if not values.isdisjoint(self.known):
                    self.known |= values

    def track_saved(self, number: int, worst: float) -> float:
        """Return the largest difference that a backward call may read from its forward call; 0 for others.

        Args:
            number: The call; of a forward call, ``worst`` is kept for its backward call.
            worst: The largest difference of what it receives or returns, as a multiple of rounding.
        """
        key = self.calls.keys[number]
        if self.is_backward[number]:
            return self.saved.get(key.replace(".backward", ".forward"), 0.0)
        if worst:
            self.saved[key] = worst
        return 0.0

    def _find_source(self, because: DivergenceReason) -> Node | None:
        """Return the call that does not line up and returned the value that an op receives, if any."""
        if because.cause is not Cause.TAKEN_IN:
            return None
        value = because.value
        for node in reversed(self.replaced):
            returned = node.because.value
            if (returned.distance, returned.scale, returned.why) == (value.distance, value.scale, value.why):
                return node
        return None

    def _take_vanished(self, number: int, because: DivergenceReason) -> Node | None:
        """Return the withdrawn difference in the module around parameters whose gradients differ, if any.

        What a module returns does not depend on all that the gradients of its parameters depend on.
        """
        if because.cause is not Cause.GRADIENT:
            return None
        path = self.calls.keys[number].split(".")[1:-2]
        for node in self.vanished:
            around = node.facts.within[0].split(".")[1:-3]
            if path[: len(around)] == around:
                self.vanished.remove(node)
                return node
        return None

    def withdraw_vanished(self, number: int) -> None:
        """Take back what was reported within a module whose own outputs agree."""
        within = self.calls.within[number]
        for module in within:
            if module not in self.entered:
                self.entered[module] = self.past.worst
        if not self.largest.agrees[number]:
            return
        key = self.calls.keys[number]
        if not self.past.named:  # what grew within it has gone again
            if self.grown is not None and key in self.grown.facts.within and can_show_gone(self.grown):
                self.grown = None
                self.past.worst = self.entered.get(key, self.past.worst)
            return
        if not (self.nodes and key in self.nodes[-1].facts.within):
            return
        self.vanished.append(self.nodes.pop())
        self.further = [node for node in self.further if key not in node.facts.within]
        self.behind.clear()
        if self.grown is not None and key in self.grown.facts.within:
            self.grown = None
        self.past.named = False
        self.past.worst = self.before

    def can_report(self, number: int) -> bool:
        """Return True if a call may be reported: the first one, or one within a module that was reported."""
        return not self.past.named or self._is_inside_last_reported(number)

    def _is_inside_last_reported(self, number: int) -> bool:
        """Return True for a call within the module reported last; some recorders write the module first."""
        return bool(self.nodes) and self.nodes[-1].facts.op in self.calls.within[number]


def is_large(value: Difference) -> bool:
    """Return True for a difference so large that what agrees behind it shows that it has gone."""
    return value.times(value.scale, value.noise) >= limits().gone


def can_show_gone(node: Node) -> bool:
    """Return True if what agrees behind a difference shows that it had no effect.

    A small difference may vanish in statistics beside what is added to it; a large one does not.
    """
    value = node.because.value
    return value.by != Basis.STATISTICS or is_large(value)


def find_worst(values: Iterable[Difference], noise: float, scale: float = 0.0) -> tuple[float, Difference | None]:
    """Return the largest difference among values, as a multiple of rounding, and the value that has it.

    Args:
        values: The values.
        noise: The coarsest rounding so far.
        scale: The least scale that differences are divided by.

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
    """Return the reason why an op is reported whose input differs."""
    return DivergenceReason(Cause.TAKEN_IN, value, earlier=past.lacking, times=input_distance)
