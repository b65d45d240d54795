"""Check of communication calls: the values that each rank received, against those that all ranks sent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.run import Run
from probe_diagnosis.collectives import laws
from probe_diagnosis.collectives.calls import CommunicationCall, Flow, find_api, get_argument_name, parse_call
from probe_diagnosis.collectives.laws import ExpectedBuffer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Breach:
    """A call that delivered wrong values to a rank.

    Attributes:
        rank: The rank.
        op: The key of its call.
        law: The values that it should have received, in words.
        evidence: The values that it did receive, in words.
    """

    rank: int
    op: str
    law: str
    evidence: str


@dataclass(slots=True)
class CommunicationCheck:
    """Result of checking the communication calls of a run.

    Attributes:
        kept: Number of calls of single ranks that delivered the right values.
        breaches: Calls that delivered wrong values, in the order of the record.
        unchecked: Number of calls that could not be checked, by the reason.
    """

    kept: int = 0
    breaches: list[Breach] = field(default_factory=list)
    unchecked: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _RecordedCall:
    """A recorded communication call of one rank."""

    rank: int
    run: Run
    record: Record
    call: CommunicationCall

    def find_slots(self, argument: str, side: Side) -> list[Slot]:
        """Return the values of one argument, before the call (input side) or after it (output side)."""
        inputs = [slot for slot in self.record.slots if slot.side is Side.INPUT]
        if side is Side.INPUT:
            return [slot for slot in inputs if get_argument_name(self.call.api, slot) == argument]
        heads = list(dict.fromkeys(slot.path.partition(".")[0] for slot in inputs))
        names = [self._get_argument_name(head) for head in heads]
        if argument not in names:
            return []
        position = str(names.index(argument))
        outputs = (slot for slot in self.record.slots if slot.side is Side.OUTPUT)
        return [slot for slot in outputs if slot.path.partition(".")[0] == position]

    def _get_argument_name(self, head: str) -> str:
        """Return the name of an argument given by its position or its name."""
        arguments = self.call.api.arguments
        return arguments[int(head)] if head.isdecimal() and int(head) < len(arguments) else head

    def read_arrays(self, argument: str, side: Side) -> list[Array]:
        """Return the tensors of one argument, before the call (input side) or after it (output side).

        Raises:
            _Unknown: They were not recorded, or cannot be read.
        """
        slots = self.find_slots(argument, side)
        tensors = [slot for slot in slots if slot.value.kind is Kind.TENSOR]
        if not tensors or len(tensors) != len(slots):
            raise _UncheckableError("the values of a rank were not recorded")
        return [self._read_tensor(slot) for slot in tensors]

    def _read_tensor(self, slot: Slot) -> Array:
        """Return the data of one tensor."""
        if slot.value.is_empty:
            return np.empty(slot.value.shape or (0,), np.float32)
        if slot.value.data_name is None:
            raise _UncheckableError("the data of tensors were not recorded")
        try:
            return self.run.tensor(slot.value)
        except UnreadableTensor as error:
            raise _UncheckableError("a tensor cannot be read") from error

    def format_scalar(self, argument: str) -> str:
        """Return a scalar argument as text; empty if it was not given."""
        for slot in self.find_slots(argument, Side.INPUT):
            return str(slot.value.statistics.max)
        return ""


class _UncheckableError(Exception):
    """Reason why a call cannot be checked."""


def check_communication(runs: Mapping[int, Run]) -> CommunicationCheck:
    """Check all communication calls of the ranks of one run.

    Args:
        runs: The opened ranks by number.
    """
    result = CommunicationCheck()
    world = _find_world(runs)
    for members in _match_calls(runs):
        try:
            received = list(_judge(members, world))
        except _UncheckableError as reason:
            result.unchecked[str(reason)] = result.unchecked.get(str(reason), 0) + len(members)
            continue
        except (ValueError, TypeError, IndexError) as error:
            text = f"the arguments of its ranks do not fit together ({error})"
            result.unchecked[text] = result.unchecked.get(text, 0) + len(members)
            continue
        for call, law, evidence in received:
            if evidence:
                result.breaches.append(Breach(call.rank, call.record.key, law, evidence))
            else:
                result.kept += 1
    return result


def _match_calls(runs: Mapping[int, Run]) -> Iterator[list[_RecordedCall]]:
    """Yield the calls that belong together: the k-th of an API in a group, or from one rank to another."""
    meetings: dict[object, list[_RecordedCall]] = {}
    counts: dict[object, int] = {}
    undirected = {rank for rank, run in runs.items() if _takes_from_anyone(run)}
    for rank, run in sorted(runs.items()):
        for record in run.records():
            call = parse_call(record)
            if call is None or not call.api.law:
                continue
            if call.api.flow in (Flow.SEND, Flow.RECEIVE):
                peer = call.peers[0].rank if call.peers else -1
                ends = (rank, peer) if call.api.flow is Flow.SEND else (peer, rank)
                named = {get_argument_name(call.api, slot): slot for slot in record.slots if slot.side is Side.INPUT}
                tag = named["tag"].value.statistics.max if "tag" in named else 0
                kind: object = ("transfer", ends, tag)
                if ends[1] in undirected or ends[0] == -1:
                    kind = ("anyone", rank, record.key)
            else:
                kind = (call.api.name, call.group)
            number = counts.get((rank, kind), 0)
            counts[rank, kind] = number + 1
            meetings.setdefault((kind, number), []).append(_RecordedCall(rank, run, record, call))
    yield from meetings.values()


def _find_world(runs: Mapping[int, Run]) -> range:
    """Return all ranks of the run: those recorded, those named by calls, and those with a place in a list."""
    last = max(runs)
    for run in runs.values():
        for record in run.records():
            call = parse_call(record)
            if call is None:
                continue
            last = max([last, *call.group, call.root or 0, *(peer.rank for peer in call.peers)])
            if not call.group and call.api.fills and call.api.gives:
                paths = [slot.path.split(".") for slot in record.slots if slot.side is Side.OUTPUT]
                last = max([last, *(int(path[1]) for path in paths if len(path) == 2 and path[1].isdecimal())])
    return range(last + 1)


def _takes_from_anyone(run: Run) -> bool:
    """Return True if a rank receives from any sender, so that its transfers cannot be matched."""
    calls = (parse_call(record) for record in run.records() if find_api(record.key))
    return any(call and call.api.flow is Flow.RECEIVE and not call.peers for call in calls)


def _judge(members: Sequence[_RecordedCall], world: Sequence[int]) -> Iterator[tuple[_RecordedCall, str, str]]:
    """Yield the call of each receiving rank, the values due in words, and the deviation in words.

    The deviation is empty if the rank received the right values.
    """
    call = members[0].call
    if call.api.flow in (Flow.SEND, Flow.RECEIVE):
        yield from _judge_transfer(members)
        return
    group = call.group or world
    by_rank = {member.rank: member for member in members}
    if set(group) != set(by_rank):
        raise _UncheckableError("a rank of the group has no record of the call")
    ranks = [by_rank[rank] for rank in group]
    law = _LAWS[call.api.law]
    for number, member in enumerate(ranks):
        if call.api.flow is Flow.TO_ROOT and member.rank != call.root:
            continue
        words, expected = law(ranks, number)
        received = member.read_arrays(call.api.fills, Side.OUTPUT)
        flat = np.concatenate([array.reshape(-1) for array in received]) if len(received) > 1 else received[0]
        yield member, words, laws.describe_deviation(flat, expected)


def _judge_transfer(members: Sequence[_RecordedCall]) -> Iterator[tuple[_RecordedCall, str, str]]:
    """Yield the receiving side of a transfer between two ranks, as ``_judge`` does."""
    sent = [member for member in members if member.call.api.flow is Flow.SEND]
    received = [member for member in members if member.call.api.flow is Flow.RECEIVE]
    if len(sent) != 1 or len(received) != 1:
        raise _UncheckableError("the matching send or receive is not known")
    expected = laws.gather(sent[0].read_arrays("tensor", Side.INPUT))
    arrived = received[0].read_arrays("tensor", Side.OUTPUT)
    words = f"the values that rank {sent[0].rank} sent"
    yield received[0], words, laws.describe_deviation(arrived[0], expected)


# -- the laws --------------------------------------------------------------------------------------


def _read_sent_tensors(recorded: _RecordedCall) -> list[Array]:
    """Return the tensors that a rank sends."""
    return recorded.read_arrays(recorded.call.api.gives, Side.INPUT)


def _flatten_sent_tensors(recorded: _RecordedCall) -> Array:
    """Return the values that a rank sends, as one flat array."""
    return np.concatenate([array.reshape(-1) for array in _read_sent_tensors(recorded)])


def _parse_operation(recorded: _RecordedCall) -> str:
    """Return the operation of a reduction, such as ``SUM``."""
    text = recorded.format_scalar("op").rpartition(".")[2].upper()
    if text in ("", "NONE"):
        return "SUM"
    if text not in ("SUM", "AVG", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"):
        raise _UncheckableError(f"the operation {text[:30]} is not known to probe")
    return text


def _format_ranks(ranks: Sequence[_RecordedCall]) -> str:
    """Return the numbers of ranks as text."""
    return ", ".join(str(member.rank) for member in ranks)


def _reduce(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to each rank of a reduction, in words and as numbers."""
    operation = _parse_operation(ranks[0])
    expected = laws.reduce([_flatten_sent_tensors(member) for member in ranks], operation)
    return f"the {operation.lower()} over ranks {_format_ranks(ranks)}", expected


def _gather(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to each rank of a gather, in words and as numbers."""
    words = f"the values of ranks {_format_ranks(ranks)}, concatenated"
    return words, laws.gather([_flatten_sent_tensors(member) for member in ranks])


def _copy(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to each rank of a broadcast, in words and as numbers."""
    root = _find_root(ranks)
    return f"the values of rank {root.rank}", laws.gather(_read_sent_tensors(root))


def _scatter(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to the rank at place ``number`` of a scatter, in words and as numbers."""
    root = _find_root(ranks)
    tensors = _read_sent_tensors(root)
    if len(tensors) != len(ranks):
        raise _UncheckableError("the values of a rank were not recorded")
    return f"piece {number} of the values of rank {root.rank}", laws.gather([tensors[number]])


def _reduce_scatter(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to the rank at place ``number``, in words and as numbers."""
    operation = _parse_operation(ranks[0])
    whole = laws.reduce([_flatten_sent_tensors(member) for member in ranks], operation)
    pieces = _read_sent_tensors(ranks[number])
    size = whole.values.size
    sizes = [piece.size for piece in pieces] if len(pieces) == len(ranks) else [size // len(ranks)] * len(ranks)
    words = f"piece {number} of the {operation.lower()} over ranks {_format_ranks(ranks)}"
    return words, laws.extract_part(whole, sizes, number)


def _transpose(ranks: Sequence[_RecordedCall], number: int) -> tuple[str, ExpectedBuffer]:
    """Return the values due to the rank at place ``number`` of an all_to_all, in words and as numbers."""
    pieces = [_split_pieces(member, len(ranks))[number] for member in ranks]
    return f"piece {number} of the values of each of ranks {_format_ranks(ranks)}, concatenated", laws.gather(pieces)


def _split_pieces(recorded: _RecordedCall, count: int) -> list[Array]:
    """Return the values that a rank sends to each of ``count`` ranks."""
    tensors = _read_sent_tensors(recorded)
    if len(tensors) == count and recorded.call.api.name == "all_to_all":
        return tensors
    sizes = [
        int(slot.value.statistics.max)
        for slot in recorded.find_slots("input_split_sizes", Side.INPUT)
        if isinstance(slot.value.statistics.max, int)
    ]
    tensor = tensors[0]
    if not sizes:
        if not tensor.shape or tensor.shape[0] % count:
            raise ValueError(f"shape {tensor.shape} for {count} ranks")
        sizes = [tensor.shape[0] // count] * count
    return np.split(tensor, np.cumsum(sizes)[:-1])


def _find_root(ranks: Sequence[_RecordedCall]) -> _RecordedCall:
    """Return the call of the rank that sends in a broadcast or scatter."""
    wanted = ranks[0].call.root
    for member in ranks:
        if member.rank == wanted:
            return member
    raise _UncheckableError("the sending rank has no record of the call")


_LAWS = {
    "reduce": _reduce,
    "gather": _gather,
    "copy": _copy,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "transpose": _transpose,
}
"""Laws of the calls with a group, by their names in ``apis.yaml`` (docs/collectives.md#laws)."""
