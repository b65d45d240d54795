"""Meetings of ranks in communication calls: which exchange the histories of the ranks."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from probe_diagnosis.collectives.calls import CommunicationCall, Flow
from probe_diagnosis.difference.differing_values import find_first_differing
from probe_diagnosis.difference.explanations import explain_input, find_largest_difference
from probe_diagnosis.difference.nodes import RankHistory
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason
from probe_diagnosis.difference.walking import Walker
from probe_diagnosis.timeline.compared_calls import ComparedCall, ValueState


class Meetings:
    """Matching of communication calls: ranks that wait for others, and values sent but not yet received.

    Attributes:
        senders: For each rank and communication call: the other ranks that sent it values that differ.
    """

    def __init__(self, walkers: dict[int, Walker]) -> None:
        self.senders: dict[tuple[int, str], tuple[int, ...]] = {}
        self._walkers = walkers
        self._sent: dict[tuple[int, int], deque[tuple[RankHistory, float]]] = {}
        self._has_sent: set[tuple[int, int]] = set()

    def settle(self) -> None:
        """Let each rank pass its next call if all parts of that call are there; if none can, let one pass."""
        waiting = [walker for walker in self._walkers.values() if walker.cursor.call is not None]
        if not waiting:
            return
        moved = False
        for walker in waiting:
            if self._settle_transfer(walker, force=False):
                moved = True
        groups = self._list_collectives()
        for members, expected in groups:
            if len(members) == expected:
                self._settle_collective(members)
                moved = True
        if moved:
            return
        # the record of some rank lacks its part of a call
        receiving = [walker for walker in waiting if self._is_send_missing(walker)]
        if groups and not receiving:
            self._settle_collective(max(groups, key=lambda group: len(group[0]) / max(1, group[1]))[0])
        else:
            self._settle_transfer((receiving or waiting)[0], force=True)

    def _is_send_missing(self, walker: Walker) -> bool:
        """Return True for a rank that waits for a send that the rest of the sender's record lacks."""
        op = walker.cursor.call
        if op is None or op.communication is None or op.communication.api.flow not in (Flow.RECEIVE, Flow.EXCHANGE):
            return False
        for peer in op.communication.peers:
            if not peer.sends and not self._sent.get((peer.rank, walker.cursor.rank)) and peer.rank in self._walkers:
                sender = self._walkers[peer.rank]
                rest = sender.cursor.iterate_communication()
                if not any(p.sends and p.rank == walker.cursor.rank for call in rest for p in call.peers):
                    return True
        return False

    # -- between two ranks -------------------------------------------------------------------------

    def _settle_transfer(self, walker: Walker, *, force: bool) -> bool:
        """Let a rank pass a send, a receive, or a list of both, if the values that it receives were sent.

        Args:
            walker: The rank.
            force: True to let it pass although values are missing.

        Returns:
            True if the rank passed.
        """
        op = walker.cursor.call
        assert op is not None and op.communication is not None
        call = op.communication
        if call.api.flow not in (Flow.SEND, Flow.RECEIVE, Flow.EXCHANGE):
            return False
        call_id = (walker.cursor.rank, walker.cursor.index)
        if call_id not in self._has_sent:
            self._has_sent.add(call_id)
            self._send(walker, op, call)
        wanted = Counter(peer.rank for peer in call.peers if not peer.sends)
        if call.api.flow is Flow.RECEIVE and not wanted:  # a receive from any rank
            wanted = Counter([rank for rank in self._walkers if self._sent.get((rank, walker.cursor.rank))][:1])
            if not wanted and not force:
                return False
        receiver = walker.cursor.rank
        lacking = [source for source, count in wanted.items() if len(self._sent.get((source, receiver), ())) < count]
        if any(source in self._walkers for source in lacking) and not force:
            return False
        if call.api.flow is not Flow.SEND:
            sources = [source for source, count in wanted.items() if source not in lacking for _ in range(count)]
            arrived = [self._sent[source, receiver].popleft() for source in sources]
            sizes = [(sent_distance, source) for source, (_, sent_distance) in zip(sources, arrived)]
            self._note_senders(walker, {source: sent_distance for sent_distance, source in sorted(sizes)})
            self._receive(walker, op, arrived, lacking)
        walker.history.layer += 1
        walker.cursor.pass_communication()
        return True

    def _send(self, walker: Walker, op: ComparedCall, call: CommunicationCall) -> None:
        """Send the rank's history, with the difference of its inputs, to each receiver of the call."""
        sent_distance = _inspect_inputs(walker, op)
        for peer in call.peers:
            if peer.sends:
                channel = (walker.cursor.rank, peer.rank)
                self._sent.setdefault(channel, deque()).append((walker.history.copy(), sent_distance))

    def _receive(
        self, walker: Walker, op: ComparedCall, arrived: Sequence[tuple[RankHistory, float]], unknown: Sequence[int]
    ) -> None:
        """Merge the histories that arrived into the rank's own, and examine the values that it received."""
        for sender_history, _ in arrived:
            walker.history.merge(sender_history)
        _deliver(walker, op, max((sent_distance for _, sent_distance in arrived), default=0.0), unknown)

    # -- in a group --------------------------------------------------------------------------------

    def _list_collectives(self) -> list[tuple[list[Walker], int]]:
        """Return the collectives that ranks wait at: the waiting ranks, and the number of ranks expected."""
        groups: dict[object, tuple[list[Walker], int]] = {}
        for walker in self._walkers.values():
            op = walker.cursor.call
            if op is None or op.communication is None:
                continue
            call = op.communication
            if call.api.flow in (Flow.SEND, Flow.RECEIVE, Flow.EXCHANGE):
                continue
            members = [rank for rank in call.group if rank in self._walkers] or list(self._walkers)
            if walker.cursor.rank not in members:  # the group uses numbers other than those of the ranks
                members = [walker.cursor.rank]
            kind = (call.api.name, call.group if len(members) > 1 else walker.cursor.rank)
            key = (*kind, walker.cursor.get_count(kind))
            groups.setdefault(key, ([], len(members)))[0].append(walker)
        return list(groups.values())

    def _settle_collective(self, members: Sequence[Walker]) -> None:
        """Let ranks pass a collective that they make together."""
        calls = [walker.cursor.call for walker in members]
        first = calls[0]
        assert first is not None and first.communication is not None
        flow, root = first.communication.api.flow, first.communication.root
        sources = [walker for walker in members if flow is not Flow.FROM_ROOT or walker.cursor.rank == root]
        sent_distances = {
            walker.cursor.rank: _inspect_inputs(walker, walker.cursor.call) for walker in sources if walker.cursor.call
        }
        joint = RankHistory(layer=max(walker.history.layer for walker in members))
        if flow is not Flow.NONE:
            for walker in sources:
                joint.merge(walker.history)
        sent_distance = max((sent_distances[walker.cursor.rank] for walker in sources), default=0.0)
        inputs = [value for walker in sources if walker.cursor.call for value in walker.cursor.call.inputs()]
        scale = max((value.scale for value in inputs), default=0.0)
        unknown = self._list_uncompared_ranks(
            first.communication, [walker.cursor.rank for walker in members], flow, root
        )
        for walker, op in zip(members, calls):
            assert op is not None and op.communication is not None
            rank = walker.cursor.rank
            kind = (
                op.communication.api.name,
                op.communication.group if self._is_shared(op.communication, rank) else rank,
            )
            walker.cursor.add_count(kind)
            if flow is not Flow.TO_ROOT or walker.cursor.rank == root:
                walker.history.merge(joint)
                if flow is not Flow.NONE:
                    self._note_senders(walker, sent_distances)
                    is_only_rank = not op.communication.group and len(self._walkers) == 1
                    _deliver(walker, op, sent_distance, unknown, scale, is_only_rank=is_only_rank)
            walker.history.layer = joint.layer + 1
            walker.cursor.pass_communication()

    def _note_senders(self, walker: Walker, sent_distances: Mapping[int, float]) -> None:
        """Keep the other ranks that sent values that differ to the next call of a rank."""
        senders = tuple(rank for rank, size in sent_distances.items() if size > 1 and rank != walker.cursor.rank)
        if senders and walker.cursor.call is not None:
            self.senders[walker.cursor.rank, walker.cursor.call.op] = senders

    def _is_shared(self, call: CommunicationCall, rank: int) -> bool:
        """Return True if a rank makes a collective together with other ranks of the comparison."""
        members = [member for member in call.group if member in self._walkers] or list(self._walkers)
        return rank in members and len(members) > 1

    def _list_uncompared_ranks(
        self, call: CommunicationCall, present: Sequence[int], flow: Flow, root: int | None
    ) -> list[int]:
        """Return the ranks that may have sent values, but were not compared or did not record the call."""
        if flow is Flow.FROM_ROOT:
            return [root] if root is not None and root not in present else []
        return [rank for rank in call.group if rank not in present]


def _inspect_inputs(walker: Walker, op: ComparedCall) -> float:
    """Report a call whose inputs differ although no earlier difference explains them.

    Returns:
        The largest difference of its inputs, as a multiple of rounding.
    """
    history = walker.history
    history.noise = max([history.noise, *(value.noise for value in op.values)])
    input_distance, largest_value = find_largest_difference(op.inputs(), history.noise)
    if (
        largest_value is not None
        and input_distance > 1
        and input_distance > largest_value.jump * history.largest_multiple
        and walker.reported.can_report(walker.cursor.number)
    ):
        walker.reported.report_call(walker.cursor.number, explain_input(largest_value, input_distance, history))
    history.largest_multiple = max(history.largest_multiple, input_distance)
    return input_distance


def _deliver(
    walker: Walker,
    op: ComparedCall,
    sent_distance: float,
    unknown: Sequence[int],
    scale: float = 0.0,
    *,
    is_only_rank: bool = False,
) -> None:
    """Report a call that delivers values that differ although the values that were sent agree.

    Args:
        walker: The receiving rank.
        op: The call.
        sent_distance: The largest difference of the values that were sent, as a multiple of rounding.
        unknown: Ranks that may have sent values, but were not compared in this call.
        scale: The largest scale of the values that were sent.
        is_only_rank: True if no other rank is searched, and the members of the group are not recorded.
    """
    history, number = walker.history, walker.cursor.number
    received_distance, largest_value = find_largest_difference(op.outputs(), history.noise, scale)
    if largest_value is not None and received_distance > 1:
        explained_distance = largest_value.jump * max(sent_distance, history.largest_multiple)
        if received_distance > explained_distance and walker.reported.can_report(number):
            is_known = not (unknown or is_only_rank)
            argument = find_first_differing(op.arguments(), explained_distance) if is_known else None
            reason = DivergenceReason(
                CauseKind.DELIVERED, largest_value, argument=argument, not_compared=history.not_compared,
                sent_distance=sent_distance, absent_ranks=tuple(unknown), largest_multiple=received_distance,
                is_only_rank=is_only_rank,
            )  # fmt: skip
            walker.reported.report_call(number, reason)
        growth_reason = DivergenceReason(
            CauseKind.GROWN, largest_value, not_compared=history.not_compared, largest_multiple=received_distance
        )
        walker.reported.note_growth(number, growth_reason)
    own_distance, _ = find_largest_difference(op.outputs(), history.noise)
    history.largest_multiple = max(history.largest_multiple, received_distance, own_distance)
    history.not_compared += sum(value.state == ValueState.UNJUDGED and not value.is_scalar for value in op.values)
