"""The first difference over all ranks: a walk over their ops in the order of cause and effect.

Between two communication calls a rank computes by itself; at a call it may learn from others. So the ranks
are walked side by side, each up to its next call, and the calls are matched as the ranks must have met in
them: the k-th call of one API in one group on each of its ranks, the k-th send from one rank to another with
the k-th receive. A rank carries whether a difference has been named in its past, or in the past of anyone it
learnt from; once one has, nothing behind it is first. What is left is what no other difference can explain:
before, across and after communication alike (the phases of spec/compare 12.2).

What is named is

* an op whose outputs differ although its tensors agree: its own doing, a differing argument is evidence;
* an op that takes in values that differ although nothing before it does: weights, data, unseen changes;
* a communication call that delivers values that differ although all that was sent agrees.

"Differ" is beyond what rounding explains in the coarsest dtype met so far, and a number of times (the
policy's ``jump``) what the inputs, or anything before, differ by: rounding that builds up step by step names
nothing.
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
from probe_diagnosis.difference.facts import DIFFERS, Apart, OpFacts

_IN_OP = re.compile(r".*?\.(?:forward|backward)\.(?:\d+\.)?")


@dataclass(frozen=True, slots=True)
class Node:
    """An op where the runs part.

    Attributes:
        rank: The rank that it ran on.
        facts: The op.
        why: What makes it the first.
        layer: How many communication calls lay before it.
        place: Its ordinal behind the last of these.
    """

    rank: int
    facts: OpFacts
    why: str
    layer: int
    place: int


@dataclass(slots=True)
class _Past:
    """What a rank has met so far: its largest difference, its coarsest rounding, whether one was named."""

    worst: float = 0.0
    noise: float = 0.0
    named: bool = False
    layer: int = 0

    def learn(self, other: _Past) -> None:
        """What is known of another rank's past is known of one's own."""
        self.worst = max(self.worst, other.worst)
        self.noise = max(self.noise, other.noise)
        self.named = self.named or other.named
        self.layer = max(self.layer, other.layer)

    def copy(self) -> _Past:
        return _Past(self.worst, self.noise, self.named, self.layer)


@dataclass(slots=True)
class _Walker:
    """One rank on its way through its ops."""

    rank: int
    ops: Sequence[OpFacts]
    past: _Past = field(default_factory=_Past)
    at: int = 0
    place: int = 0
    nodes: list[Node] = field(default_factory=list)
    counts: dict[object, int] = field(default_factory=dict)

    @property
    def op(self) -> OpFacts | None:
        return self.ops[self.at] if self.at < len(self.ops) else None

    def step(self) -> None:
        self.at += 1
        self.place += 1

    def name(self, facts: OpFacts, why: str) -> None:
        """Keep an op as the first difference, or in place of the module around it that was kept."""
        node = Node(self.rank, facts, why, self.past.layer, self.place)
        if not self.past.named:
            self.nodes.append(node)
            self.past.named = True
        elif self._is_inside_the_last(facts):
            self.nodes[-1] = node

    def may_name(self, facts: OpFacts) -> bool:
        return not self.past.named or self._is_inside_the_last(facts)

    def _is_inside_the_last(self, facts: OpFacts) -> bool:
        """True for a call within the module that was named; some recorders note the module first."""
        return bool(self.nodes) and self.nodes[-1].facts.op in facts.within


def first_differences(ranks: Mapping[int, Sequence[OpFacts]]) -> list[Node]:
    """The ops that no other difference explains, earliest first.

    Args:
        ranks: The ops of each rank, in the order of its run.
    """
    walkers = {rank: _Walker(rank, _in_time(ops)) for rank, ops in sorted(ranks.items())}
    meeting = _Meetings(walkers)
    while any(walker.op is not None for walker in walkers.values()):
        for walker in walkers.values():
            while (op := walker.op) is not None and op.call is None:
                _compute(walker, op)
                walker.step()
        meeting.settle()
    nodes = [node for walker in walkers.values() for node in walker.nodes]
    return sorted(nodes, key=lambda node: (node.layer, node.place, node.rank))


def _in_time(ops: Iterable[OpFacts]) -> list[OpFacts]:
    """The ops in the order of their effects: gradients of parameters are recorded before they are made."""
    found = _modules_last(list(ops))
    return [op for op in found if not is_gradient(op.op)] + [op for op in found if is_gradient(op.op)]


def _modules_last(ops: list[OpFacts]) -> list[OpFacts]:
    """Modules behind the calls within them, whichever was noted first; inner ones before outer ones."""
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
    import yaml

    text = files(__package__).joinpath("scales.yaml").read_text("utf-8")
    return frozenset(yaml.safe_load(text)["own_scale"])


def _has_own_scale(key: str) -> bool:
    """Whether the output of an op does not grow with its inputs."""
    parts = key.split(".")
    return len(parts) > 3 and parts[-3].rstrip("_") in _own_scale()


def _scale_of(op: OpFacts) -> float:
    """What the outputs of an op are measured against besides their own scale: 0 where nothing is.

    Gradients of a module's parameters are measured against each other: one that is zero in theory, such as
    that of a bias in front of a normalisation, holds nothing but rounding.
    """
    if is_gradient(op.op):
        return max((value.scale for value in op.values), default=0.0)
    if _has_own_scale(op.op):
        return 0.0
    return max((value.scale for value in op.inputs()), default=0.0)


def _worst(values: Iterable[Apart], noise: float, scale: float = 0.0) -> tuple[float, Apart | None]:
    """The largest difference among values, in multiples of rounding, and whose it is."""
    worst, whose = 0.0, None
    for value in values:
        times = value.times(max(value.scale, scale), noise)
        if times > worst:
            worst, whose = times, value
    return worst, whose


def _compute(walker: _Walker, op: OpFacts) -> None:
    """Look at an op that only its own rank has to do with."""
    past = walker.past
    past.noise = max([past.noise, *(value.noise for value in op.values)])
    taken, whose = _worst(op.inputs(), past.noise)
    scale = _scale_of(op)
    given, result = _worst(op.outputs(), past.noise, scale)
    if walker.may_name(op):
        if (
            result is not None
            and given > 1
            and given > result.jump * taken
            and not (taken and result.is_exact)
        ):
            walker.name(op, _own_doing(op, result, taken))
        elif whose is not None and taken > 1 and taken > whose.jump * past.worst:
            walker.name(op, f"takes in values that differ, and nothing before it does ({_told(whose)})")
    own, _ = _worst(op.outputs(), past.noise)  # so it will be taken in, and is explained from here on
    past.worst = max(past.worst, taken, own)


def _agreeing(taken: float, one: str, verb: str) -> str:
    """How far what went in agrees, by its largest difference in multiples of rounding."""
    if not taken:
        return f"{one} {verb}"
    return f"{one} {verb} within rounding" if taken <= 1 else f"{one} {verb} far better"


def _own_doing(op: OpFacts, result: Apart, taken: float) -> str:
    argument = next((value for value in op.arguments() if value.state == DIFFERS), None)
    if is_gradient(op.op):
        return f"differs, and nothing before it does ({_told(result)})"
    if argument is not None:
        called = f"was called with another argument ({_told(argument)})"
        return f"{called} and gives out other values ({_told(result)})"
    return (
        f"gives out values that differ although {_agreeing(taken, 'its inputs', 'agree')} ({_told(result)})"
    )


def _told(value: Apart) -> str:
    short = _IN_OP.sub("", value.row)
    return f"{short}: {value.why}" if value.why else short


class _Meetings:
    """Where ranks meet: calls that wait for others, and what was sent and not yet received."""

    def __init__(self, walkers: dict[int, _Walker]) -> None:
        self._walkers = walkers
        self._sent: dict[tuple[int, int], deque[tuple[_Past, float]]] = {}
        self._has_sent: set[tuple[int, int]] = set()

    def settle(self) -> None:
        """Let every rank through its next call that can go through; where none can, let one through."""
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
        # some rank never makes its part of a call: its record is not complete
        receiving = [walker for walker in waiting if self._is_in_vain(walker)]
        if groups and not receiving:
            self._collective(max(groups, key=lambda one: len(one[0]) / max(1, one[1]))[0])
        else:
            self._transfer((receiving or waiting)[0], force=True)

    def _is_in_vain(self, walker: _Walker) -> bool:
        """True for a rank that waits for what another never sends on what is left of its record."""
        op = walker.op
        if op is None or op.call is None or op.call.api.flow not in (Flow.RECEIVE, Flow.EXCHANGE):
            return False
        for peer in op.call.peers:
            if not peer.sends and not self._sent.get((peer.rank, walker.rank)) and peer.rank in self._walkers:
                other = self._walkers[peer.rank]
                left = (one.call for one in other.ops[other.at :] if one.call is not None)
                if not any(p.sends and p.rank == walker.rank for call in left for p in call.peers):
                    return True
        return False

    # -- between two ranks -------------------------------------------------------------------------

    def _transfer(self, walker: _Walker, *, force: bool) -> bool:
        """Let a rank through a send, a receive, or a list of both, if what it receives was sent."""
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
        if call.api.flow is Flow.RECEIVE and not wanted:  # from whoever sends
            wanted = Counter([rank for rank in self._walkers if self._sent.get((rank, walker.rank))][:1])
            if not wanted and not force:
                return False
        here = walker.rank
        lacking = [one for one, count in wanted.items() if len(self._sent.get((one, here), ())) < count]
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
        given = _look_at_inputs(walker, op)
        for peer in call.peers:
            if peer.sends:
                channel = (walker.rank, peer.rank)
                self._sent.setdefault(channel, deque()).append((walker.past.copy(), given))

    def _receive(
        self, walker: _Walker, op: OpFacts, arrived: Sequence[tuple[_Past, float]], unknown: Sequence[int]
    ) -> None:
        for past, _ in arrived:
            walker.past.learn(past)
        _deliver(walker, op, max((given for _, given in arrived), default=0.0), unknown)

    # -- in a group --------------------------------------------------------------------------------

    def _collectives(self) -> list[tuple[list[_Walker], int]]:
        """The calls that ranks stand at, with how many ranks are expected in each."""
        groups: dict[object, tuple[list[_Walker], int]] = {}
        for walker in self._walkers.values():
            op = walker.op
            if op is None or op.call is None:
                continue
            call = op.call
            if call.api.flow in (Flow.SEND, Flow.RECEIVE, Flow.EXCHANGE):
                continue
            members = [rank for rank in call.group if rank in self._walkers] or list(self._walkers)
            if walker.rank not in members:  # numbered otherwise than we know: nobody to wait for
                members = [walker.rank]
            what = (call.api.name, call.group if len(members) > 1 else walker.rank)
            key = (*what, walker.counts.get(what, 0))
            groups.setdefault(key, ([], len(members)))[0].append(walker)
        return list(groups.values())

    def _collective(self, members: Sequence[_Walker]) -> None:
        """Let ranks through a call that they make together."""
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
        scale = max((one.scale for walker in sources if walker.op for one in walker.op.inputs()), default=0.0)
        unknown = self._not_compared(first.call, [walker.rank for walker in members], flow, root)
        for walker, op in zip(members, calls):
            assert op is not None and op.call is not None
            what = (op.call.api.name, op.call.group if self._is_shared(op.call, walker.rank) else walker.rank)
            walker.counts[what] = walker.counts.get(what, 0) + 1
            if flow is not Flow.TO_ROOT or walker.rank == root:
                walker.past.learn(joint)
                if flow is not Flow.NONE:
                    _deliver(walker, op, worst, unknown, scale)
            walker.past.layer = joint.layer + 1
            walker.step()
            walker.place = 0

    def _is_shared(self, call: Call, rank: int) -> bool:
        members = [other for other in call.group if other in self._walkers] or list(self._walkers)
        return rank in members and len(members) > 1

    def _not_compared(self, call: Call, present: Sequence[int], flow: Flow, root: int | None) -> list[int]:
        """The ranks that values come from and that were not compared, or did not record the call."""
        if flow is Flow.FROM_ROOT:
            return [root] if root is not None and root not in present else []
        return [rank for rank in call.group if rank not in present]


def _look_at_inputs(walker: _Walker, op: OpFacts) -> float:
    """Name a call that takes in values that differ though nothing before it does; how far they are apart."""
    past = walker.past
    past.noise = max([past.noise, *(value.noise for value in op.values)])
    taken, whose = _worst(op.inputs(), past.noise)
    if whose is not None and taken > 1 and taken > whose.jump * past.worst and walker.may_name(op):
        walker.name(op, f"takes in values that differ, and nothing before it does ({_told(whose)})")
    past.worst = max(past.worst, taken)
    return taken


def _deliver(walker: _Walker, op: OpFacts, given: float, unknown: Sequence[int], scale: float = 0.0) -> None:
    """Name a call that delivers values that differ though what was sent agrees."""
    past = walker.past
    got, whose = _worst(op.outputs(), past.noise, scale)
    if whose is not None and got > 1 and got > whose.jump * max(given, past.worst) and walker.may_name(op):
        if unknown:
            who = ", ".join(map(str, unknown))
            why = f"delivers values that differ ({_told(whose)}); rank {who}, which may have sent them, "
            why += "is not compared"
        else:
            argument = next((value for value in op.arguments() if value.state == DIFFERS), None)
            why = f"was called with another argument ({_told(argument)}) and " if argument is not None else ""
            sent = _agreeing(given, "all that was sent", "agrees")
            why += f"delivers values that differ although {sent} ({_told(whose)})"
        walker.name(op, why)
    past.worst = max(past.worst, got, _worst(op.outputs(), past.noise)[0])
