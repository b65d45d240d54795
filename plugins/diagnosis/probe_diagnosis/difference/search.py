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
* a communication call that delivers values that differ although the values that were sent agree.

"Differ" means: by more than rounding explains in the coarsest dtype met so far, and by more than ``jump``
times the difference of the inputs or of anything earlier. So rounding that grows from op to op is not
reported.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

from probe_core.store.names import is_gradient
from probe_diagnosis.collectives.calls import Call, Flow
from probe_diagnosis.difference.facts import DIFFERS, UNJUDGED, Apart, OpFacts

_IN_OP = re.compile(r".*?\.(?:forward|backward)\.(?:\d+\.)?")


@dataclass(frozen=True, slots=True)
class Node:
    """An op where the runs diverge.

    Attributes:
        rank: The rank that ran it.
        facts: The op.
        why: The reason, a clause whose subject is the op.
        layer: Number of communication calls before it.
        place: Number of ops between the last of these and it.
    """

    rank: int
    facts: OpFacts
    why: str
    layer: int
    place: int


@dataclass(slots=True)
class _Past:
    """History of a rank up to some op.

    Attributes:
        worst: The largest difference so far, as a multiple of rounding.
        noise: The coarsest rounding so far.
        named: True if a difference was reported.
        layer: Number of communication calls so far.
    """

    worst: float = 0.0
    noise: float = 0.0
    named: bool = False
    layer: int = 0

    def learn(self, other: _Past) -> None:
        """Merge another rank's history into this one."""
        self.worst = max(self.worst, other.worst)
        self.noise = max(self.noise, other.noise)
        self.named = self.named or other.named
        self.layer = max(self.layer, other.layer)

    def copy(self) -> _Past:
        """Return a copy, to be sent to another rank."""
        return _Past(self.worst, self.noise, self.named, self.layer)


@dataclass(slots=True)
class _Walker:
    """A rank on its way through its ops.

    Attributes:
        rank: Its number.
        ops: Its ops, in the order of their effects.
        past: Its history.
        at: Index of its next op.
        place: Number of ops since the last communication call.
        nodes: The differences that were reported.
        counts: Number of calls so far of each API in each group.
    """

    rank: int
    ops: Sequence[OpFacts]
    past: _Past = field(default_factory=_Past)
    at: int = 0
    place: int = 0
    nodes: list[Node] = field(default_factory=list)
    counts: dict[object, int] = field(default_factory=dict)

    @property
    def op(self) -> OpFacts | None:
        """The next op; None at the end."""
        return self.ops[self.at] if self.at < len(self.ops) else None

    def step(self) -> None:
        """Go on to the next op."""
        self.at += 1
        self.place += 1

    def name(self, facts: OpFacts, why: str) -> None:
        """Report an op as the first difference; it replaces a module around it that was reported."""
        node = Node(self.rank, facts, why, self.past.layer, self.place)
        if not self.past.named:
            self.nodes.append(node)
            self.past.named = True
        elif self._is_inside_the_last(facts):
            self.nodes[-1] = node

    def may_name(self, facts: OpFacts) -> bool:
        """Return True if an op may be reported: the first one, or one within a module that was reported."""
        return not self.past.named or self._is_inside_the_last(facts)

    def _is_inside_the_last(self, facts: OpFacts) -> bool:
        """Return True for a call within the module reported last; some recorders write the module first."""
        return bool(self.nodes) and self.nodes[-1].facts.op in facts.within


def first_differences(ranks: Mapping[int, Sequence[OpFacts]]) -> list[Node]:
    """Return the ops that no other difference explains, earliest first.

    Args:
        ranks: The ops of each rank, in the order of its record.
    """
    walkers = {rank: _Walker(rank, _in_time(ops)) for rank, ops in sorted(ranks.items())}
    meetings = _Meetings(walkers)
    while any(walker.op is not None for walker in walkers.values()):
        for walker in walkers.values():
            while (op := walker.op) is not None and op.call is None:
                _compute(walker, op)
                walker.step()
        meetings.settle()
    nodes = [node for walker in walkers.values() for node in walker.nodes]
    return sorted(nodes, key=lambda node: (node.layer, node.place, node.rank))


def _in_time(ops: Iterable[OpFacts]) -> list[OpFacts]:
    """Return the ops in the order of their effects; gradients of parameters are recorded too early."""
    ordered = _modules_last(list(ops))
    return [op for op in ordered if not is_gradient(op.op)] + [op for op in ordered if is_gradient(op.op)]


def _modules_last(ops: list[OpFacts]) -> list[OpFacts]:
    """Return the ops with each module after the calls within it, and inner modules before outer ones."""
    ends: dict[str, int] = {}
    for place, op in enumerate(ops):
        for module in op.within:
            ends[module] = place

    def order(place: int) -> tuple[int, int]:
        end = ends.get(ops[place].op, place)
        return (end, len(ops) - place) if end > place else (place, 0)

    return [ops[place] for place in sorted(range(len(ops)), key=order)]


@cache
def _own_scale() -> frozenset[str]:
    """Return the names of the APIs in ``scales.yaml``."""
    import yaml

    text = files(__package__).joinpath("scales.yaml").read_text("utf-8")
    return frozenset(yaml.safe_load(text)["own_scale"])


def _has_own_scale(key: str) -> bool:
    """Return True if the outputs of an op do not grow with its inputs."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-3].rstrip("_") in _own_scale()


def _scale_of(op: OpFacts) -> float:
    """Return the scale that the outputs of an op are measured against besides their own; 0 for none.

    The gradients of a module's parameters are measured against the largest of them. One that is zero in
    theory, such as that of a bias in front of a normalisation, holds nothing but rounding.
    """
    if is_gradient(op.op):
        return max((value.scale for value in op.values), default=0.0)
    if _has_own_scale(op.op):
        return 0.0
    return max((value.scale for value in op.inputs()), default=0.0)


def _worst(values: Iterable[Apart], noise: float, scale: float = 0.0) -> tuple[float, Apart | None]:
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
        times = value.times(max(value.scale, scale), noise)
        if times > largest:
            largest, worst = times, value
    return largest, worst


def _compute(walker: _Walker, op: OpFacts) -> None:
    """Examine an op that is no communication call, and report it if it is the first difference."""
    past = walker.past
    past.noise = max([past.noise, *(value.noise for value in op.values)])
    taken, worst_input = _worst(op.inputs(), past.noise)
    given, worst_output = _worst(op.outputs(), past.noise, _scale_of(op))
    if walker.may_name(op):
        if (
            worst_output is not None
            and given > 1
            and given > worst_output.jump * taken
            and not (taken and worst_output.is_exact)
        ):
            walker.name(op, _reason_of(op, worst_output, taken))
        elif worst_input is not None and taken > 1 and taken > worst_input.jump * past.worst:
            walker.name(op, _unexplained_input(worst_input))
    own, _ = _worst(op.outputs(), past.noise)  # later ops take the outputs in with a difference of this size
    past.worst = max(past.worst, taken, own)


def _reason_of(op: OpFacts, output: Apart, taken: float) -> str:
    """Return the reason why an op whose own outputs differ is reported.

    Args:
        op: The op.
        output: Its output that differs most.
        taken: The largest difference of its inputs, as a multiple of rounding.
    """
    argument = _differing_argument(op)
    if is_gradient(op.op):
        return f"differs, and no earlier difference explains it ({_evidence(output)})"
    if argument is not None:
        called = f"was called with a different argument ({_evidence(argument)})"
        return f"{called} and returns values that differ ({_evidence(output)})"
    if taken > 1:
        agreement = "far more than its inputs do"
    elif taken:
        agreement = "although its inputs agree within rounding"
    elif any(value.state != UNJUDGED for value in op.inputs()):
        agreement = "although its inputs agree"
    else:
        agreement = "and no input tensor was compared"
    return f"returns values that differ, {agreement} ({_evidence(output)})"


def _unexplained_input(value: Apart) -> str:
    """Return the reason why an op is reported whose input differs."""
    return f"takes in values that differ, and no earlier difference explains them ({_evidence(value)})"


def _differing_argument(op: OpFacts) -> Apart | None:
    """Return the first scalar argument of an op that differs; None for none."""
    return next((value for value in op.arguments() if value.state == DIFFERS), None)


def _evidence(value: Apart) -> str:
    """Return the short name of a value, and the evidence that it differs."""
    name = _IN_OP.sub("", value.row)
    return f"{name}: {value.why}" if value.why else name


class _Meetings:
    """Matching of communication calls: ranks that wait for others, and values sent but not yet received."""

    def __init__(self, walkers: dict[int, _Walker]) -> None:
        self._walkers = walkers
        self._sent: dict[tuple[int, int], deque[tuple[_Past, float]]] = {}
        self._has_sent: set[tuple[int, int]] = set()

    def settle(self) -> None:
        """Let each rank pass its next call if all parts of that call are there; if none can, let one pass."""
        waiting = [walker for walker in self._walkers.values() if walker.op is not None]
        if not waiting:
            return
        moved = False
        for walker in waiting:
            if self._transfer(walker, force=False):
                moved = True
        groups = self._collectives()
        for members, expected in groups:
            if len(members) == expected:
                self._collective(members)
                moved = True
        if moved:
            return
        # the record of some rank lacks its part of a call
        receiving = [walker for walker in waiting if self._is_in_vain(walker)]
        if groups and not receiving:
            self._collective(max(groups, key=lambda group: len(group[0]) / max(1, group[1]))[0])
        else:
            self._transfer((receiving or waiting)[0], force=True)

    def _is_in_vain(self, walker: _Walker) -> bool:
        """Return True for a rank that waits for a send that the rest of the sender's record lacks."""
        op = walker.op
        if op is None or op.call is None or op.call.api.flow not in (Flow.RECEIVE, Flow.EXCHANGE):
            return False
        for peer in op.call.peers:
            if not peer.sends and not self._sent.get((peer.rank, walker.rank)) and peer.rank in self._walkers:
                other = self._walkers[peer.rank]
                rest = (later.call for later in other.ops[other.at :] if later.call is not None)
                if not any(p.sends and p.rank == walker.rank for call in rest for p in call.peers):
                    return True
        return False

    # -- between two ranks -------------------------------------------------------------------------

    def _transfer(self, walker: _Walker, *, force: bool) -> bool:
        """Let a rank pass a send, a receive, or a list of both, if the values that it receives were sent.

        Args:
            walker: The rank.
            force: True to let it pass although values are missing.

        Returns:
            True if the rank passed.
        """
        op = walker.op
        assert op is not None and op.call is not None
        call = op.call
        if call.api.flow not in (Flow.SEND, Flow.RECEIVE, Flow.EXCHANGE):
            return False
        me = (walker.rank, walker.at)
        if me not in self._has_sent:
            self._has_sent.add(me)
            self._send(walker, op, call)
        wanted = Counter(peer.rank for peer in call.peers if not peer.sends)
        if call.api.flow is Flow.RECEIVE and not wanted:  # a receive from any rank
            wanted = Counter([rank for rank in self._walkers if self._sent.get((rank, walker.rank))][:1])
            if not wanted and not force:
                return False
        here = walker.rank
        lacking = [
            source for source, count in wanted.items() if len(self._sent.get((source, here), ())) < count
        ]
        if any(source in self._walkers for source in lacking) and not force:
            return False
        if call.api.flow is not Flow.SEND:
            arrived = [
                self._sent[source, here].popleft()
                for source, count in wanted.items()
                if source not in lacking
                for _ in range(count)
            ]
            self._receive(walker, op, arrived, lacking)
        walker.past.layer += 1
        walker.step()
        walker.place = 0
        return True

    def _send(self, walker: _Walker, op: OpFacts, call: Call) -> None:
        """Send the rank's history, with the difference of its inputs, to each receiver of the call."""
        given = _look_at_inputs(walker, op)
        for peer in call.peers:
            if peer.sends:
                channel = (walker.rank, peer.rank)
                self._sent.setdefault(channel, deque()).append((walker.past.copy(), given))

    def _receive(
        self, walker: _Walker, op: OpFacts, arrived: Sequence[tuple[_Past, float]], unknown: Sequence[int]
    ) -> None:
        """Merge the histories that arrived into the rank's own, and examine the values that it received."""
        for past, _ in arrived:
            walker.past.learn(past)
        _deliver(walker, op, max((given for _, given in arrived), default=0.0), unknown)

    # -- in a group --------------------------------------------------------------------------------

    def _collectives(self) -> list[tuple[list[_Walker], int]]:
        """Return the collectives that ranks wait at: the waiting ranks, and the number of ranks expected."""
        groups: dict[object, tuple[list[_Walker], int]] = {}
        for walker in self._walkers.values():
            op = walker.op
            if op is None or op.call is None:
                continue
            call = op.call
            if call.api.flow in (Flow.SEND, Flow.RECEIVE, Flow.EXCHANGE):
                continue
            members = [rank for rank in call.group if rank in self._walkers] or list(self._walkers)
            if walker.rank not in members:  # the group uses numbers other than those of the ranks
                members = [walker.rank]
            kind = (call.api.name, call.group if len(members) > 1 else walker.rank)
            key = (*kind, walker.counts.get(kind, 0))
            groups.setdefault(key, ([], len(members)))[0].append(walker)
        return list(groups.values())

    def _collective(self, members: Sequence[_Walker]) -> None:
        """Let ranks pass a collective that they make together."""
        calls = [walker.op for walker in members]
        first = calls[0]
        assert first is not None and first.call is not None
        flow, root = first.call.api.flow, first.call.root
        sources = [walker for walker in members if flow is not Flow.FROM_ROOT or walker.rank == root]
        given = {walker.rank: _look_at_inputs(walker, walker.op) for walker in sources if walker.op}
        joint = _Past(layer=max(walker.past.layer for walker in members))
        if flow is not Flow.NONE:
            for walker in sources:
                joint.learn(walker.past)
        worst = max((given[walker.rank] for walker in sources), default=0.0)
        inputs = [value for walker in sources if walker.op for value in walker.op.inputs()]
        scale = max((value.scale for value in inputs), default=0.0)
        unknown = self._not_compared(first.call, [walker.rank for walker in members], flow, root)
        for walker, op in zip(members, calls):
            assert op is not None and op.call is not None
            kind = (op.call.api.name, op.call.group if self._is_shared(op.call, walker.rank) else walker.rank)
            walker.counts[kind] = walker.counts.get(kind, 0) + 1
            if flow is not Flow.TO_ROOT or walker.rank == root:
                walker.past.learn(joint)
                if flow is not Flow.NONE:
                    _deliver(walker, op, worst, unknown, scale)
            walker.past.layer = joint.layer + 1
            walker.step()
            walker.place = 0

    def _is_shared(self, call: Call, rank: int) -> bool:
        """Return True if a rank makes a collective together with other ranks of the comparison."""
        members = [other for other in call.group if other in self._walkers] or list(self._walkers)
        return rank in members and len(members) > 1

    def _not_compared(self, call: Call, present: Sequence[int], flow: Flow, root: int | None) -> list[int]:
        """Return the ranks that may have sent values, but were not compared or did not record the call."""
        if flow is Flow.FROM_ROOT:
            return [root] if root is not None and root not in present else []
        return [rank for rank in call.group if rank not in present]


def _look_at_inputs(walker: _Walker, op: OpFacts) -> float:
    """Report a call whose inputs differ although no earlier difference explains them.

    Returns:
        The largest difference of its inputs, as a multiple of rounding.
    """
    past = walker.past
    past.noise = max([past.noise, *(value.noise for value in op.values)])
    taken, worst = _worst(op.inputs(), past.noise)
    if worst is not None and taken > 1 and taken > worst.jump * past.worst and walker.may_name(op):
        walker.name(op, _unexplained_input(worst))
    past.worst = max(past.worst, taken)
    return taken


def _deliver(walker: _Walker, op: OpFacts, given: float, unknown: Sequence[int], scale: float = 0.0) -> None:
    """Report a call that delivers values that differ although the values that were sent agree.

    Args:
        walker: The receiving rank.
        op: The call.
        given: The largest difference of the values that were sent, as a multiple of rounding.
        unknown: Ranks that may have sent values, but were not compared in this call.
        scale: The largest scale of the values that were sent.
    """
    past = walker.past
    got, worst = _worst(op.outputs(), past.noise, scale)
    if worst is not None and got > 1 and got > worst.jump * max(given, past.worst) and walker.may_name(op):
        if unknown:
            ranks, verb = ("rank", "was") if len(unknown) == 1 else ("ranks", "were")
            ranks += f" {', '.join(map(str, unknown))}"
            why = f"delivers values that differ ({_evidence(worst)}); {ranks} may have sent them, "
            why += f"and {verb} not compared in this call"
        else:
            argument = _differing_argument(op)
            why = ""
            if argument is not None:
                why = f"was called with a different argument ({_evidence(argument)}) and "
            why += f"delivers values that differ, {_agreement_of_sent(given)} ({_evidence(worst)})"
        walker.name(op, why)
    past.worst = max(past.worst, got, _worst(op.outputs(), past.noise)[0])


def _agreement_of_sent(given: float) -> str:
    """Return a clause that says how well the values that were sent agree, by their largest difference."""
    if not given:
        return "although no difference was found in what was sent"
    if given <= 1:
        return "although what was sent agrees within rounding"
    return "far more than what was sent does"
