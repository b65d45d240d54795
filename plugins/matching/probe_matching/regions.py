"""Where two aligned runs do not line up: n calls of the one for m of the other, compared at their edges.

What flows into such a region and what comes out of it may be the same on both sides, though what lies between
is not: a fused operator for the calls that it stands for, or a layer that another framework takes apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from probe_core.matching.matching import NONE, Matching, Region
from probe_core.model import Kind, Record, Slot
from probe_core.model.run import Run
from probe_matching.likeness import content_of, is_alone, place_of


def regions(target: Run, golden: Run, calls: dict[int, int]) -> Iterator[Region]:
    """The stretches of calls between two pairs that have no partner, of either run."""
    taken = set(calls.values())
    stretch: list[int] = []
    seen: set[int] = set()
    before = NONE
    for index in range(len(target) + 1):
        partner = calls.get(index) if index < len(target) else len(golden)
        if partner is None:
            stretch.append(index)
            continue
        others: list[int] = []
        position = before + 1
        while position < len(golden) and position not in taken and position not in seen:
            others.append(position)
            position += 1
        seen.update(others)
        if stretch or others:
            yield Region(tuple(stretch), tuple(others))
        stretch, before = [], partner
    left = [position for position in range(len(golden)) if position not in taken and position not in seen]
    if left:
        yield Region((), tuple(left))


def pair_edges(matching: Matching, region: Region, target: Run, golden: Run) -> None:
    """Pair what flows into a region, and what comes out of it, phase by phase.

    First what is alike in shape and content; then by shape what the first call takes in, and what the last
    one gives out; and where one call stands against several, by shape what is the only one of it. A single
    number says nothing by its shape, but where one call stands on a side.
    """
    theirs = _by_phase(golden, region.golden)
    for phase, ours in _by_phase(target, region.target).items():
        others = theirs.get(phase, [])
        for into in (True, False) if others else ():
            edges = _Edges(matching, _flowing(ours, target, into), _flowing(others, golden, into))
            edges.pair(_likeness, lambda _: True)
            if 1 in (len(ours), len(others)):
                edges.pair(_extent, lambda flow: flow.at_end)
                edges.pair_unique(_extent)
            else:
                edges.pair(_extent, lambda flow: flow.at_end and bool(flow.slot.value.shape))


class _Flow(NamedTuple):
    """A value that flows into a region or out of it."""

    number: int
    slot: Slot
    is_of_module: bool
    at_end: bool


class _Edges:
    """What flows over one edge of a region on both sides, without what has paired."""

    def __init__(self, matching: Matching, ours: list[_Flow], theirs: list[_Flow]) -> None:
        self._matching = matching
        self._ours, self._theirs = ours, theirs

    def pair(self, key: Callable[[_Flow], object], chosen: Callable[[_Flow], bool]) -> None:
        """Pair the chosen that have one key, in order; a key of None has no partner."""
        free: dict[object, list[_Flow]] = {}
        for flow in filter(chosen, reversed(self._theirs)):
            free.setdefault(key(flow), []).append(flow)
        free.pop(None, None)
        pairs = [
            (flow, queue.pop()) for flow in self._ours if chosen(flow) and (queue := free.get(key(flow)))
        ]
        self._keep(pairs)

    def pair_unique(self, key: Callable[[_Flow], object]) -> None:
        """Pair what is alone of its key on either side."""
        counts = [Counter(map(key, flows)) for flows in (self._ours, self._theirs)]
        alone = {one for one, count in counts[0].items() if count == 1 and counts[1][one] == 1}
        self.pair(key, lambda flow: key(flow) in alone)

    def _keep(self, pairs: Sequence[tuple[_Flow, _Flow]]) -> None:
        for one, other in pairs:
            self._matching.partners[one.number] = other.number
        paired = {one.number for one, _ in pairs}, {other.number for _, other in pairs}
        self._ours = [flow for flow in self._ours if flow.number not in paired[0]]
        self._theirs = [flow for flow in self._theirs if flow.number not in paired[1]]


def _by_phase(run: Run, indices: Iterable[int]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {}
    for index in indices:
        key = run.names()[index]
        place = place_of(key)
        found.setdefault(place[1] if place else key.rpartition(".")[2], []).append(run.record(index))
    return found


def _flowing(records: Sequence[Record], run: Run, into: bool) -> list[_Flow]:
    """What the records take in that none of them made before, or give out that none of them takes in later.

    The first come first; of what they give out, the last.
    """
    inside: set[object] = set()
    found: list[_Flow] = []
    end = records[0 if into else -1]
    for record in records if into else reversed(records):
        start, is_of_module = run.starts[record.index], place_of(record.key) is not None
        between = []
        for place, slot in enumerate(record.slots):
            if slot.value.kind is not Kind.TENSOR:
                continue
            flow = _Flow(start + place, slot, is_of_module, record is end)
            if slot.side.is_source is not into:
                between.append(_likeness(flow))
            elif not is_alone(slot) and _likeness(flow) not in inside:
                found.append(flow)
        inside.update(one for one in between if one is not None)
    return found


def _extent(flow: _Flow) -> object:
    return flow.slot.value.extent


def _likeness(flow: _Flow) -> object:
    """Its shape, its content, and whether a module has it; None where it holds one number, or nothing."""
    numbers = flow.slot.value.statistics
    content = content_of(flow.slot)
    if content is None or (numbers.max is not None and numbers.max == numbers.min):
        return None
    return flow.slot.value.extent, content, flow.is_of_module
