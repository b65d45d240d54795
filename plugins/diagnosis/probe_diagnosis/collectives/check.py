"""Do the communication calls of a run keep their laws? What each rank received, against what all gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Record, Side, Slot
from probe_core.model.run import Run
from probe_diagnosis.collectives import laws
from probe_diagnosis.collectives.calls import Call, Flow, api_of, argument_of, call_of
from probe_diagnosis.collectives.laws import Expected

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Breach:
    """A rank that received something else than it should have.

    Attributes:
        rank: The rank.
        op: Its call.
        law: What it should have received, in words.
        evidence: What it received.
    """

    rank: int
    op: str
    law: str
    evidence: str


@dataclass(slots=True)
class Check:
    """What came of checking a run's calls.

    Attributes:
        kept: Calls of single ranks that keep their law.
        breaches: Those that do not, in the order of the calls.
        unchecked: Calls that could not be checked, by the reason.
    """

    kept: int = 0
    breaches: list[Breach] = field(default_factory=list)
    unchecked: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Made:
    """A communication call on record."""

    rank: int
    run: Run
    record: Record
    call: Call

    def slots(self, argument: str, side: Side) -> list[Slot]:
        """The values of one argument, as they were before the call or, on the output side, behind it."""
        inputs = [slot for slot in self.record.slots if slot.side is Side.INPUT]
        if side is Side.INPUT:
            return [slot for slot in inputs if argument_of(self.call.api, slot) == argument]
        heads = list(dict.fromkeys(slot.path.partition(".")[0] for slot in inputs))
        names = [self._name(head) for head in heads]
        if argument not in names:
            return []
        number = str(names.index(argument))
        outputs = (slot for slot in self.record.slots if slot.side is Side.OUTPUT)
        return [slot for slot in outputs if slot.path.partition(".")[0] == number]

    def _name(self, head: str) -> str:
        arguments = self.call.api.arguments
        return arguments[int(head)] if head.isdecimal() and int(head) < len(arguments) else head

    def arrays(self, argument: str, side: Side) -> list[Array]:
        """The tensors of one argument; raises _Unknown where they are not to be had."""
        slots = self.slots(argument, side)
        tensors = [slot for slot in slots if slot.value.kind is Kind.TENSOR]
        if not tensors or len(tensors) != len(slots):
            raise _Unknown("a rank's values are not on record")
        return [self._tensor(slot) for slot in tensors]

    def _tensor(self, slot: Slot) -> Array:
        if slot.value.is_empty:
            return np.empty(slot.value.shape or (0,), np.float32)
        if slot.value.data_name is None:
            raise _Unknown("tensors are not on record")
        try:
            return self.run.tensor(slot.value)
        except UnreadableTensor as error:
            raise _Unknown("a tensor cannot be read") from error

    def text(self, argument: str) -> str:
        """A scalar argument as text; empty where it was left out."""
        for slot in self.slots(argument, Side.INPUT):
            return str(slot.value.statistics.max)
        return ""


class _Unknown(Exception):
    """Why a call cannot be checked."""


def check(runs: Mapping[int, Run]) -> Check:
    """Check all communication calls of the ranks of one run.

    Args:
        runs: The opened ranks by number.
    """
    found = Check()
    world = _world(runs)
    for members in _meetings(runs):
        try:
            results = list(_judge(members, world))
        except _Unknown as reason:
            found.unchecked[str(reason)] = found.unchecked.get(str(reason), 0) + len(members)
            continue
        except (ValueError, TypeError, IndexError) as error:
            text = f"their arguments do not fit together ({error})"
            found.unchecked[text] = found.unchecked.get(text, 0) + len(members)
            continue
        for made, law, evidence in results:
            if evidence:
                found.breaches.append(Breach(made.rank, made.record.key, law, evidence))
            else:
                found.kept += 1
    return found


def _meetings(runs: Mapping[int, Run]) -> Iterator[list[_Made]]:
    """The calls that belong together: the k-th of a kind in a group, the k-th from one rank to another."""
    meetings: dict[object, list[_Made]] = {}
    counts: dict[object, int] = {}
    taking = {rank for rank, run in runs.items() if _takes_from_anyone(run)}
    for rank, run in sorted(runs.items()):
        for record in run.records():
            call = call_of(record)
            if call is None or not call.api.law:
                continue
            if call.api.flow in (Flow.SEND, Flow.RECEIVE):
                peer = call.peers[0].rank if call.peers else -1
                ends = (rank, peer) if call.api.flow is Flow.SEND else (peer, rank)
                named = {
                    argument_of(call.api, slot): slot for slot in record.slots if slot.side is Side.INPUT
                }
                tag = named["tag"].value.statistics.max if "tag" in named else 0
                kind: object = ("transfer", ends, tag)
                if ends[1] in taking or ends[0] == -1:
                    kind = ("anyone", rank, record.key)
            else:
                kind = (call.api.name, call.group)
            number = counts.get((rank, kind), 0)
            counts[rank, kind] = number + 1
            meetings.setdefault((kind, number), []).append(_Made(rank, run, record, call))
    yield from meetings.values()


def _world(runs: Mapping[int, Run]) -> range:
    """All ranks there must have been: those on record, named, or with a place in a list (one a rank)."""
    last = max(runs)
    for run in runs.values():
        for record in run.records():
            call = call_of(record)
            if call is None:
                continue
            last = max([last, *call.group, call.root or 0, *(peer.rank for peer in call.peers)])
            if not call.group and call.api.fills and call.api.gives:
                paths = [slot.path.split(".") for slot in record.slots if slot.side is Side.OUTPUT]
                last = max(
                    [last, *(int(path[1]) for path in paths if len(path) == 2 and path[1].isdecimal())]
                )
    return range(last + 1)


def _takes_from_anyone(run: Run) -> bool:
    calls = (call_of(record) for record in run.records() if api_of(record.key))
    return any(call and call.api.flow is Flow.RECEIVE and not call.peers for call in calls)


def _judge(members: Sequence[_Made], world: Sequence[int]) -> Iterator[tuple[_Made, str, str]]:
    """Each rank that receives in a call, what it should receive in words, and how it does not."""
    call = members[0].call
    if call.api.flow in (Flow.SEND, Flow.RECEIVE):
        yield from _transferred(members)
        return
    group = call.group or world
    by_rank = {made.rank: made for made in members}
    if set(group) != set(by_rank):
        raise _Unknown("a rank of the group is not on record")
    ranks = [by_rank[rank] for rank in group]
    law = _LAWS[call.api.law]
    for number, made in enumerate(ranks):
        if call.api.flow is Flow.TO_ROOT and made.rank != call.root:
            continue
        words, expected = law(ranks, number)
        received = made.arrays(call.api.fills, Side.OUTPUT)
        flat = np.concatenate([array.reshape(-1) for array in received]) if len(received) > 1 else received[0]
        yield made, words, laws.breach(flat, expected)


def _transferred(members: Sequence[_Made]) -> Iterator[tuple[_Made, str, str]]:
    sent = [made for made in members if made.call.api.flow is Flow.SEND]
    received = [made for made in members if made.call.api.flow is Flow.RECEIVE]
    if len(sent) != 1 or len(received) != 1:
        raise _Unknown("the other side of a transfer is not on record")
    expected = laws.gather(sent[0].arrays("tensor", Side.INPUT))
    arrived = received[0].arrays("tensor", Side.OUTPUT)
    words = f"what rank {sent[0].rank} sent"
    yield received[0], words, laws.breach(arrived[0], expected)


# -- the laws --------------------------------------------------------------------------------------


def _given(made: _Made) -> list[Array]:
    return made.arrays(made.call.api.gives, Side.INPUT)


def _flat(made: _Made) -> Array:
    return np.concatenate([array.reshape(-1) for array in _given(made)])


def _operation(made: _Made) -> str:
    text = made.text("op").rpartition(".")[2].upper()
    if text in ("", "NONE"):
        return "SUM"
    if text not in ("SUM", "AVG", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"):
        raise _Unknown(f"the operation {text[:30]} is not known")
    return text


def _names(ranks: Sequence[_Made]) -> str:
    return ", ".join(str(made.rank) for made in ranks)


def _reduce(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    operation = _operation(ranks[0])
    expected = laws.reduce([_flat(made) for made in ranks], operation)
    return f"the {operation.lower()} over ranks {_names(ranks)}", expected


def _gather(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    return f"the values of ranks {_names(ranks)} one behind the other", laws.gather([_flat(r) for r in ranks])


def _copy(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    root = _root(ranks)
    return f"what rank {root.rank} holds", laws.gather(_given(root))


def _scatter(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    root = _root(ranks)
    given = _given(root)
    if len(given) != len(ranks):
        raise _Unknown("a rank's values are not on record")
    return f"piece {number} of what rank {root.rank} holds", laws.gather([given[number]])


def _reduce_scatter(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    operation = _operation(ranks[0])
    whole = laws.reduce([_flat(made) for made in ranks], operation)
    pieces = _given(ranks[number])
    size = whole.values.size
    sizes = (
        [piece.size for piece in pieces] if len(pieces) == len(ranks) else [size // len(ranks)] * len(ranks)
    )
    words = f"piece {number} of the {operation.lower()} over ranks {_names(ranks)}"
    return words, laws.part(whole, sizes, number)


def _transpose(ranks: Sequence[_Made], number: int) -> tuple[str, Expected]:
    pieces = [_pieces(made, len(ranks))[number] for made in ranks]
    return f"piece {number} of each of ranks {_names(ranks)}", laws.gather(pieces)


def _pieces(made: _Made, count: int) -> list[Array]:
    """What a rank gives to each of ``count`` ranks."""
    given = _given(made)
    if len(given) == count and made.call.api.name == "all_to_all":
        return given
    sizes = [
        int(slot.value.statistics.max)
        for slot in made.slots("input_split_sizes", Side.INPUT)
        if isinstance(slot.value.statistics.max, int)
    ]
    tensor = given[0]
    if not sizes:
        if not tensor.shape or tensor.shape[0] % count:
            raise ValueError(f"{tensor.shape} among {count} ranks")
        sizes = [tensor.shape[0] // count] * count
    return np.split(tensor, np.cumsum(sizes)[:-1])


def _root(ranks: Sequence[_Made]) -> _Made:
    wanted = ranks[0].call.root
    for made in ranks:
        if made.rank == wanted:
            return made
    raise _Unknown("the rank that gives is not on record")


_LAWS = {
    "reduce": _reduce,
    "gather": _gather,
    "copy": _copy,
    "scatter": _scatter,
    "reduce_scatter": _reduce_scatter,
    "transpose": _transpose,
}
