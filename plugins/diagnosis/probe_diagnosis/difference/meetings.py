"""Meetings of ranks in communication calls: whose history each of them learns."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from probe_diagnosis.collectives.calls import Call, Flow
from probe_diagnosis.difference.reasons import Because, Cause, first_differing
from probe_diagnosis.difference.walking import Past, Walker, taken_in, worst_of
from probe_diagnosis.timeline.views import UNJUDGED, CallView


class Meetings:
    """Matching of communication calls: ranks that wait for others, and values sent but not yet received.

    Attributes:
        senders: For each rank and communication call: the other ranks that sent it values that differ.
    """

    def __init__(self, walkers: dict[int, Walker]) -> None:
        self.senders: dict[tuple[int, str], tuple[int, ...]] = {}
        self._walkers = walkers
        self._sent: dict[tuple[int, int], deque[tuple[Past, float]]] = {}
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

    def _is_in_vain(self, walker: Walker) -> bool:
        """Return True for a rank that waits for a send that the rest of the sender's record lacks."""
        op = walker.op
        if op is None or op.call is None or op.call.api.flow not in (Flow.RECEIVE, Flow.EXCHANGE):
            return False
        for peer in op.call.peers:
            if not peer.sends and not self._sent.get((peer.rank, walker.rank)) and peer.rank in self._walkers:
                other = self._walkers[peer.rank]
                rest = other.communication_ahead()
                if not any(p.sends and p.rank == walker.rank for call in rest for p in call.peers):
                    return True
        return False

    # -- between two ranks -------------------------------------------------------------------------

    def _transfer(self, walker: Walker, *, force: bool) -> bool:
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
            sources = [
                source for source, count in wanted.items() if source not in lacking for _ in range(count)
            ]
            arrived = [self._sent[source, here].popleft() for source in sources]
            sizes = [(given, source) for source, (_, given) in zip(sources, arrived)]
            self._note_senders(walker, {source: given for given, source in sorted(sizes)})
            self._receive(walker, op, arrived, lacking)
        walker.past.layer += 1
        walker.step()
        walker.place = 0
        return True

    def _send(self, walker: Walker, op: CallView, call: Call) -> None:
        """Send the rank's history, with the difference of its inputs, to each receiver of the call."""
        given = _look_at_inputs(walker, op)
        for peer in call.peers:
            if peer.sends:
                channel = (walker.rank, peer.rank)
                self._sent.setdefault(channel, deque()).append((walker.past.copy(), given))

    def _receive(
        self, walker: Walker, op: CallView, arrived: Sequence[tuple[Past, float]], unknown: Sequence[int]
    ) -> None:
        """Merge the histories that arrived into the rank's own, and examine the values that it received."""
        for past, _ in arrived:
            walker.past.learn(past)
        _deliver(walker, op, max((given for _, given in arrived), default=0.0), unknown)

    # -- in a group --------------------------------------------------------------------------------

    def _collectives(self) -> list[tuple[list[Walker], int]]:
        """Return the collectives that ranks wait at: the waiting ranks, and the number of ranks expected."""
        groups: dict[object, tuple[list[Walker], int]] = {}
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

    def _collective(self, members: Sequence[Walker]) -> None:
        """Let ranks pass a collective that they make together."""
        calls = [walker.op for walker in members]
        first = calls[0]
        assert first is not None and first.call is not None
        flow, root = first.call.api.flow, first.call.root
        sources = [walker for walker in members if flow is not Flow.FROM_ROOT or walker.rank == root]
        given = {walker.rank: _look_at_inputs(walker, walker.op) for walker in sources if walker.op}
        joint = Past(layer=max(walker.past.layer for walker in members))
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
                    self._note_senders(walker, given)
                    is_alone = not op.call.group and len(self._walkers) == 1
                    _deliver(walker, op, worst, unknown, scale, is_alone=is_alone)
            walker.past.layer = joint.layer + 1
            walker.step()
            walker.place = 0

    def _note_senders(self, walker: Walker, given: Mapping[int, float]) -> None:
        """Keep the other ranks that sent values that differ to the next call of a rank."""
        senders = tuple(rank for rank, size in given.items() if size > 1 and rank != walker.rank)
        if senders and walker.op is not None:
            self.senders[walker.rank, walker.op.op] = senders

    def _is_shared(self, call: Call, rank: int) -> bool:
        """Return True if a rank makes a collective together with other ranks of the comparison."""
        members = [other for other in call.group if other in self._walkers] or list(self._walkers)
        return rank in members and len(members) > 1

    def _not_compared(self, call: Call, present: Sequence[int], flow: Flow, root: int | None) -> list[int]:
        """Return the ranks that may have sent values, but were not compared or did not record the call."""
        if flow is Flow.FROM_ROOT:
            return [root] if root is not None and root not in present else []
        return [rank for rank in call.group if rank not in present]


def _look_at_inputs(walker: Walker, op: CallView) -> float:
    """Report a call whose inputs differ although no earlier difference explains them.

    Returns:
        The largest difference of its inputs, as a multiple of rounding.
    """
    past = walker.past
    past.noise = max([past.noise, *(value.noise for value in op.values)])
    taken, worst = worst_of(op.inputs(), past.noise)
    if worst is not None and taken > 1 and taken > worst.jump * past.worst and walker.may_name(walker.number):
        walker.name(walker.number, taken_in(worst, taken, past))
    past.worst = max(past.worst, taken)
    return taken


def _deliver(
    walker: Walker,
    op: CallView,
    given: float,
    unknown: Sequence[int],
    scale: float = 0.0,
    *,
    is_alone: bool = False,
) -> None:
    """Report a call that delivers values that differ although the values that were sent agree.

    Args:
        walker: The receiving rank.
        op: The call.
        given: The largest difference of the values that were sent, as a multiple of rounding.
        unknown: Ranks that may have sent values, but were not compared in this call.
        scale: The largest scale of the values that were sent.
        is_alone: True if no other rank is searched, and the members of the group are not recorded.
    """
    past = walker.past
    got, worst = worst_of(op.outputs(), past.noise, scale)
    if (
        worst is not None
        and got > 1
        and got > worst.jump * max(given, past.worst)
        and walker.may_name(walker.number)
    ):
        is_known = not (unknown or is_alone)
        argument = first_differing(op.arguments(), worst.jump * max(given, past.worst)) if is_known else None
        reason = Because(
            Cause.DELIVERED, worst, argument=argument, earlier=past.lacking, given=given,
            absent=tuple(unknown), times=got, is_alone=is_alone,
        )  # fmt: skip
        walker.name(walker.number, reason)
    if walker.grown is None and got > 1 and worst is not None:
        walker.grown = walker.node(
            walker.number, Because(Cause.GROWN, worst, earlier=past.lacking, times=got)
        )
    past.worst = max(past.worst, got, worst_of(op.outputs(), past.noise)[0])
    past.lacking += sum(value.state == UNJUDGED and not value.is_scalar for value in op.values)
