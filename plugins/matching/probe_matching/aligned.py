"""Matching by alignment: for runs with inserted, missing, fused or renumbered calls (``--match align``).

Modules pair by their place in the model. The calls in each pair of modules are two streams, which are
aligned: calls that are alike in name, places, shapes, sort of dtypes and content, and are the only ones so on
either side, are anchors (as the unique lines are in Bram Cohen's patience diff); between anchors the longest
common subsequence of what is alike but for the content. Backward calls follow their forward calls. What is
left over between two pairs is a region of n calls for m, and is compared where it begins and where it ends.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from probe_core.matching.matching import NONE, Matching, partners_of
from probe_core.model import How, Kind, Record
from probe_core.model.plan import Plan
from probe_core.model.run import Construct, Run
from probe_core.store.names import canonical, is_debug, is_gradient, without_count
from probe_matching.alignment import align
from probe_matching.likeness import Place, comparable, content_of, form_of, place_of
from probe_matching.regions import pair_edges, regions


class Aligned:
    """Pairs calls by what they are and do, whatever their number."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """The matching of two aligned runs, with the regions where they do not line up."""
        streams = _Streams(target, golden)
        calls = dict(streams.pairs())
        partners = array("q")
        for index in range(len(target)):
            partners.extend(partners_of(target, index, golden, calls.get(index)))
        matching = Matching(How.ALIGNED, partners)
        for region in regions(target, golden, calls):
            pair_edges(matching, region, target, golden)
            matching.regions.append(region)
        return matching


class _Call(NamedTuple):
    """A call in its stream: what it may pair on, its content as a number, its name."""

    record: int
    kind: int
    content: int
    name: str


class _Streams:
    """The calls of both runs, by the modules that both have."""

    def __init__(self, target: Run, golden: Run) -> None:
        self._runs = target, golden
        self._is_loose = target.is_loose or golden.is_loose
        self._codes: dict[object, int] = {}
        self._modules_paired = dict(self._modules())
        self._homes = self._pair_homes()
        own = set(self._homes), set(self._homes.values())
        self._streams = [self._sorted(run, known) for run, known in zip(self._runs, own)]

    def pairs(self) -> Iterable[tuple[int, int]]:
        """The indices of the records that pair, of target and golden."""
        target, golden = self._runs
        found = dict(_by_place(target, golden))
        found.update(self._modules_paired)
        ours, theirs = self._streams
        for home, calls in ours.items():
            found.update(_aligned(calls, theirs.get(self._partner_of(home), [])))
        behind = {place_of(key): index for index, key in enumerate(golden.names())}
        for index, key in enumerate(target.names()):
            place = place_of(key)
            if place is not None and place[1] == "backward":
                partner = behind.get(self._homes.get(place, place))
                if partner is not None:
                    found[index] = partner
        taken = set(found.values())
        for index, partner in list(found.items()):  # a backward call has the number of its forward call
            for own, other in _backward(target.names()[index], golden.names()[partner]):
                one, two = target.find(own), golden.find(other)
                if one is not None and two is not None and one not in found and two not in taken:
                    found[one] = two
                    taken.add(two)
        rest = [
            [one for one in self._backward(side) if one.record not in known and not self._follows(side, one)]
            for side, known in enumerate((found, taken))
        ]
        found.update(_aligned(*rest))
        return found.items()

    def _sorted(self, run: Run, known: set[Place]) -> dict[Place | None, list[_Call]]:
        """The forward calls of a run, by the innermost module around them that both runs have."""
        streams: dict[Place | None, list[_Call]] = {}
        for record in run.records():
            if place_of(record.key) is None and not is_debug(record.key) and not _is_backward(record.key):
                streams.setdefault(self._home(run, record.key, known), []).append(self._call(record))
        return streams

    def _backward(self, side: int) -> list[_Call]:
        run = self._runs[side]
        keys = enumerate(run.names())
        return [self._call(run.record(i)) for i, key in keys if _is_backward(key) and place_of(key) is None]

    def _follows(self, side: int, call: _Call) -> bool:
        """True for a backward call whose forward call is on record: it pairs as that one does."""
        return self._runs[side].find(f"{call.name.removesuffix('backward')}forward") is not None

    def _modules(self) -> Iterable[tuple[int, int]]:
        """Calls of modules by the path of the module; those of one by what they hold, in order."""
        streams: list[dict[str, list[_Call]]] = [{}, {}]
        for run, stream in zip(self._runs, streams):
            for record in run.records():
                place = place_of(record.key)
                if place is not None and place[1] == "forward":
                    content = tuple(
                        content_of(slot) for slot in record.slots if slot.value.kind is Kind.TENSOR
                    )
                    kind = self._code(place[:2])
                    call = _Call(record.index, kind, self._code((kind, content)), record.key)
                    stream.setdefault(place[0], []).append(call)
        for path, calls in streams[0].items():
            yield from _aligned(calls, streams[1].get(path, []))

    def _pair_homes(self) -> dict[Place, Place]:
        """The modules around calls that both runs have, of the target and of the golden."""
        target, golden = self._runs
        theirs = _places(golden.construct)
        homes = {place: place for place in _places(target.construct) & theirs}
        recorded = {place_of(key) for run in self._runs for key in run.names()}
        homes = {one: other for one, other in homes.items() if one not in recorded}
        for index, partner in self._modules_paired.items():
            one, other = place_of(target.names()[index]), place_of(golden.names()[partner])
            assert one is not None and other is not None
            homes[one] = other
            homes[one[0], "backward", one[2]] = other[0], "backward", other[2]
        return homes

    def _partner_of(self, home: Place | None) -> Place | None:
        return None if home is None else self._homes[home]

    def _home(self, run: Run, key: str, known: set[Place]) -> Place | None:
        for module in run.construct.ancestors(key):
            place = place_of(module)
            if place is not None and place in known:
                return place
        return None

    def _call(self, record: Record) -> _Call:
        slots = comparable(record, self._is_loose)
        kind = without_count(record.key), tuple(form_of(slot) for slot in slots)
        content = tuple(content_of(slot) for slot in slots if slot.value.kind is Kind.TENSOR)
        return _Call(record.index, self._code(kind), self._code((kind, content)), canonical(record.key))

    def _code(self, value: object) -> int:
        return self._codes.setdefault(value, len(self._codes))


def _is_backward(key: str) -> bool:
    return key.endswith(".backward")


def _backward(target: str, golden: str) -> Iterable[tuple[str, str]]:
    if target.endswith(".forward") and golden.endswith(".forward"):
        yield f"{target.removesuffix('forward')}backward", f"{golden.removesuffix('forward')}backward"


def _places(construct: Construct) -> set[Place]:
    return {place for place in map(place_of, construct.modules()) if place is not None}


def _by_place(target: Run, golden: Run) -> Iterable[tuple[int, int]]:
    """Modules, gradients of parameters and saved variables, which have names of their own."""
    theirs: dict[object, int] = {}
    for index, key in enumerate(golden.names()):
        name = _own_name(key)
        if name is not None:
            theirs.setdefault(name, index)
    for index, key in enumerate(target.names()):
        name = _own_name(key)
        if name is not None and name in theirs:
            yield index, theirs.pop(name)


def _own_name(key: str) -> object:
    if is_debug(key) or is_gradient(key):
        return place_of(canonical(key)) or canonical(key)
    return None


# -- two streams -----------------------------------------------------------------------------------


def _aligned(ours: Sequence[_Call], theirs: Sequence[_Call]) -> Iterable[tuple[int, int]]:
    """The pairs of two streams: anchors, and between them the best alignment."""
    start = (0, 0)
    for anchor in [*_anchors(ours, theirs), (len(ours), len(theirs))]:
        one, two = ours[start[0] : anchor[0]], theirs[start[1] : anchor[1]]
        found = align(
            [call.kind for call in one],
            [call.kind for call in two],
            [call.name for call in one],
            [call.name for call in two],
            [call.content for call in one],
            [call.content for call in two],
        )
        yield from ((one[i].record, two[j].record) for i, j in found)
        if anchor[0] < len(ours):
            yield ours[anchor[0]].record, theirs[anchor[1]].record
        start = anchor[0] + 1, anchor[1] + 1


def _anchors(ours: Sequence[_Call], theirs: Sequence[_Call]) -> list[tuple[int, int]]:
    """Positions of calls whose content only they have, as many as there are in one order."""
    counts = Counter(call.content for call in ours), Counter(call.content for call in theirs)
    kinds = Counter(call.kind for call in (*ours, *theirs))  # alone of its kind, content tells nothing more
    where = {
        call.content: place
        for place, call in enumerate(theirs)
        if counts[1][call.content] == 1 and kinds[call.kind] > 2
    }
    pairs = [
        (place, where[call.content])
        for place, call in enumerate(ours)
        if counts[0][call.content] == 1 and call.content in where
    ]
    return _longest_rising(pairs)


def _longest_rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The longest choice of pairs whose second numbers rise, as the first ones do (Fredman, 1975)."""
    ends: list[int] = []
    tails: list[int] = []
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        before.append(tails[length - 1] if length else NONE)
        ends[length : length + 1] = [second]
        tails[length : length + 1] = [number]
    found: list[tuple[int, int]] = []
    number = tails[-1] if tails else NONE
    while number != NONE:
        found.append(pairs[number])
        number = before[number]
    return found[::-1]
