"""Matching by alignment, for runs with inserted, missing, fused or renumbered calls (``--match align``).

Modules pair by their place in the model. The calls inside each pair of modules are two streams, which are
aligned. Anchors are calls that are unique on both sides and agree in name, places, shapes, sort of dtypes, mode and
content (like unique lines in Bram Cohen's patience diff). Such calls pair even where both runs make them in
another order. Between anchors the longest common subsequence of calls pairs, in which contents may differ.
Backward calls follow their forward calls. Remaining calls between two pairs are a region, whose inputs and
outputs are compared (docs/pairing.md#alignment).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from probe_core.matching.matching import NO_PARTNER, Matching
from probe_core.matching.slot_pairing import find_partners
from probe_core.model import Kind, MatchKind, Record, Side
from probe_core.model.plan import Plan
from probe_core.model.run import Construct, Run
from probe_core.store.names import canonicalize, drop_count, is_backward, is_debug, is_gradient
from probe_matching.alignment import CallCodes, align
from probe_matching.likeness import (
    ModuleCall,
    get_content_key,
    get_shape_key,
    parse_module_call,
    select_comparable_slots,
)
from probe_matching.regions import find_regions, pair_edges


class AlignmentMatcher:
    """Matcher that pairs calls by their names, shapes and contents, and ignores their numbers."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Return the matching of two aligned runs, with the regions of calls that do not line up."""
        streams = _Streams(target, golden)
        calls = dict(streams.pair_calls())
        partners = array("q")
        for index in range(len(target)):
            partners.extend(find_partners(target, index, golden, calls.get(index)))
        matching = Matching(MatchKind.ALIGNED, partners)
        for region in find_regions(target, golden, calls):
            pair_edges(matching, region, target, golden)
            matching.regions.append(region)
        return matching


class _StreamCall(NamedTuple):
    """A call in its stream: its record, codes of its kind, mode and content, its name and the code of its arguments.

    Calls of the same kind may pair.
    """

    record: int
    kind: int
    mode: int
    content: int
    name: str
    arguments: int = 0


class _Streams:
    """The calls of both runs, grouped by the modules that both runs have."""

    def __init__(self, target: Run, golden: Run) -> None:
        self._runs = target, golden
        self._is_loose = target.is_loose or golden.is_loose
        self._codes: dict[object, int] = {}
        self._modules_paired = self._pair_modules()
        self._homes = self._pair_homes()
        common = set(self._homes), set(self._homes.values())
        self._streams = [self._group_by_module(run, places) for run, places in zip(self._runs, common)]

    def pair_calls(self) -> Iterable[tuple[int, int]]:
        """Return the indices of paired records, of target and golden."""
        target, golden = self._runs
        pairs = dict(_pair_named_records(target, golden))
        pairs.update(self._modules_paired)
        target_streams, golden_streams = self._streams
        for home, calls in target_streams.items():
            pairs.update(_align_streams(calls, golden_streams.get(self._find_partner(home), [])))
        golden_modules = {parse_module_call(key): index for index, key in enumerate(golden.names())}
        for index, key in enumerate(target.names()):
            place = parse_module_call(key)
            if place is not None and place[1] == "backward":
                partner = golden_modules.get(self._homes.get(place, place))
                if partner is not None:
                    pairs[index] = partner
        taken = set(pairs.values())
        for index, partner in list(pairs.items()):  # a backward call has the number of its forward call
            for target_key, golden_key in _pair_backward_keys(target.names()[index], golden.names()[partner]):
                first, second = target.find(target_key), golden.find(golden_key)
                if first is not None and second is not None and first not in pairs and second not in taken:
                    pairs[first] = second
                    taken.add(second)
        rest = [
            [
                call
                for call in self._collect_backward_calls(side)
                if call.record not in paired_records and not self._has_forward_call(side, call)
            ]
            for side, paired_records in enumerate((pairs, taken))
        ]
        pairs.update(_align_streams(*rest))
        return pairs.items()

    def _group_by_module(self, run: Run, common_places: set[ModuleCall]) -> dict[ModuleCall | None, list[_StreamCall]]:
        """Return the forward calls of a run by the innermost module around them that both runs have."""
        streams: dict[ModuleCall | None, list[_StreamCall]] = {}
        for record in run.records():
            if parse_module_call(record.key) is None and not is_debug(record.key) and not is_backward(record.key):
                streams.setdefault(self._find_home(run, record.key, common_places), []).append(
                    self._create_call(run, record)
                )
        return streams

    def _collect_backward_calls(self, side: int) -> list[_StreamCall]:
        run = self._runs[side]
        keys = enumerate(run.names())
        return [
            self._create_call(run, run.record(i))
            for i, key in keys
            if is_backward(key) and parse_module_call(key) is None
        ]

    def _has_forward_call(self, side: int, call: _StreamCall) -> bool:
        """Return True for a backward call whose forward call is recorded, and which pairs as that does."""
        return self._runs[side].find(f"{call.name.removesuffix('backward')}forward") is not None

    def _pair_modules(self) -> dict[int, int]:
        """Return pairs of module calls with equal paths, within the pairs of the modules around them.

        What remains of a path pairs wherever it is called.
        """
        streams = [self._group_by_path(run) for run in self._runs]
        depths = [
            {path: max(len(run.construct.ancestors(call.name)) for call in calls) for path, calls in stream.items()}
            for run, stream in zip(self._runs, streams)
        ]
        pairs: dict[int, int] = {}
        common = [path for path in streams[0] if path in streams[1]]
        for path in sorted(common, key=lambda path: max(depth[path] for depth in depths)):
            targets, goldens = (stream[path] for stream in streams)
            golden_groups = self._group_by_parent(1, goldens, {golden: golden for golden in pairs.values()})
            for parent, calls in self._group_by_parent(0, targets, pairs).items():
                pairs.update(_align_streams(calls, golden_groups.get(parent, [])))
            paired_goldens = {*pairs.values()}
            pairs.update(
                _align_streams(
                    [call for call in targets if call.record not in pairs],
                    [call for call in goldens if call.record not in paired_goldens],
                )
            )
        return pairs

    def _group_by_path(self, run: Run) -> dict[str, list[_StreamCall]]:
        """Return the calls of modules by their paths."""
        streams: dict[str, list[_StreamCall]] = {}
        for record in run.records():
            place = parse_module_call(record.key)
            if place is not None and place[1] == "forward":
                content = tuple(get_content_key(slot) for slot in record.slots if slot.value.kind is Kind.TENSOR)
                kind = self._encode(place[:2])
                codes = kind, self._encode_mode(run, record), self._encode((kind, content))
                streams.setdefault(place[0], []).append(_StreamCall(record.index, *codes, record.key))
        return streams

    def _group_by_parent(
        self, side: int, calls: Sequence[_StreamCall], goldens: Mapping[int, int]
    ) -> dict[int, list[_StreamCall]]:
        """Return calls by the golden module call that corresponds to the innermost paired module around each of them.

        Args:
            side: The run of the calls.
            calls: Calls of one module.
            goldens: The indices of golden module calls by the indices of the module calls of the run.
        """
        run = self._runs[side]
        groups: dict[int, list[_StreamCall]] = {}
        for call in calls:
            parents = map(run.find, run.construct.ancestors(call.name))
            parent = next((goldens[index] for index in parents if index is not None and index in goldens), NO_PARTNER)
            groups.setdefault(parent, []).append(call)
        return groups

    def _pair_homes(self) -> dict[ModuleCall, ModuleCall]:
        """Return the modules around calls that both runs have, of the target and of the golden."""
        target, golden = self._runs
        golden_places = _collect_places(golden.construct)
        homes = {place: place for place in _collect_places(target.construct) & golden_places}
        recorded = {parse_module_call(key) for run in self._runs for key in run.names()}
        homes = {home: partner for home, partner in homes.items() if home not in recorded}
        for index, partner_index in self._modules_paired.items():
            home, partner = parse_module_call(target.names()[index]), parse_module_call(golden.names()[partner_index])
            assert home is not None and partner is not None
            homes[home] = partner
            homes[home[0], "backward", home[2]] = partner[0], "backward", partner[2]
        return homes

    def _find_partner(self, home: ModuleCall | None) -> ModuleCall | None:
        return None if home is None else self._homes[home]

    def _find_home(self, run: Run, key: str, common_places: set[ModuleCall]) -> ModuleCall | None:
        for module in run.construct.ancestors(key):
            place = parse_module_call(module)
            if place is not None and place in common_places:
                return place
        return None

    def _create_call(self, run: Run, record: Record) -> _StreamCall:
        slots = select_comparable_slots(record, self._is_loose)
        kind = drop_count(record.key), tuple(get_shape_key(slot) for slot in slots)
        content = tuple(get_content_key(slot) for slot in slots if slot.value.kind is Kind.TENSOR)
        scalars = tuple((slot.path, slot.value.statistics.max) for slot in slots if slot.value.kind is Kind.SCALAR)
        codes = self._encode(kind), self._encode_mode(run, record), self._encode((kind, content))
        return _StreamCall(record.index, *codes, canonicalize(record.key), self._encode(("arguments", scalars)))

    def _encode_mode(self, run: Run, record: Record) -> int:
        """Return a code for whether gradients flow through a call: an evaluation is another call than training."""
        outputs = [slot.value.requires_grad for slot in record.slots if slot.side is Side.OUTPUT]
        has_backward = run.find(record.key.replace(".forward", ".backward")) is not None
        return self._encode(("mode", True in outputs, has_backward))

    def _encode(self, value: object) -> int:
        return self._codes.setdefault(value, len(self._codes))


def _pair_backward_keys(target: str, golden: str) -> Iterable[tuple[str, str]]:
    if target.endswith(".forward") and golden.endswith(".forward"):
        yield f"{target.removesuffix('forward')}backward", f"{golden.removesuffix('forward')}backward"


def _collect_places(construct: Construct) -> set[ModuleCall]:
    return {place for place in map(parse_module_call, construct.modules()) if place is not None}


def _pair_named_records(target: Run, golden: Run) -> Iterable[tuple[int, int]]:
    """Yield pairs of modules' gradients and saved variables, whose names are the same in both runs."""
    golden_names: dict[object, int] = {}
    for index, key in enumerate(golden.names()):
        name = _get_stable_name(key)
        if name is not None:
            golden_names.setdefault(name, index)
    for index, key in enumerate(target.names()):
        name = _get_stable_name(key)
        if name is not None and name in golden_names:
            yield index, golden_names.pop(name)


def _get_stable_name(key: str) -> object:
    if is_debug(key) or is_gradient(key):
        return parse_module_call(canonicalize(key)) or canonicalize(key)
    return None


# -- two streams -----------------------------------------------------------------------------------


def _align_streams(targets: Sequence[_StreamCall], goldens: Sequence[_StreamCall]) -> Iterable[tuple[int, int]]:
    """Yield the pairs of two streams: calls of unique content, and between them the best alignment."""
    unique = _find_unique_calls(targets, goldens)
    anchors = _find_longest_increasing(unique)
    if len(unique) > len(anchors):
        moved = [pair for pair in unique if pair not in set(anchors)]
        yield from ((targets[first].record, goldens[second].record) for first, second in moved)
        away = {first for first, _ in moved}, {second for _, second in moved}
        targets, goldens = (
            [call for place, call in enumerate(calls) if place not in positions]
            for calls, positions in zip((targets, goldens), away)
        )
        anchors = _find_unique_calls(targets, goldens)
    start = (0, 0)
    for anchor in [*anchors, (len(targets), len(goldens))]:
        target_part, golden_part = targets[start[0] : anchor[0]], goldens[start[1] : anchor[1]]
        aligned = align(_collect_codes(target_part), _collect_codes(golden_part))
        yield from ((target_part[i].record, golden_part[j].record) for i, j in aligned)
        if anchor[0] < len(targets):
            yield targets[anchor[0]].record, goldens[anchor[1]].record
        start = anchor[0] + 1, anchor[1] + 1


def _collect_codes(calls: Sequence[_StreamCall]) -> CallCodes:
    return CallCodes(
        [call.kind for call in calls],
        [call.name for call in calls],
        [call.mode for call in calls],
        [call.content for call in calls],
        [call.arguments for call in calls],
    )


def _find_unique_calls(targets: Sequence[_StreamCall], goldens: Sequence[_StreamCall]) -> list[tuple[int, int]]:
    """Return the positions of calls whose mode and content are unique."""
    target_keys, golden_keys = ([(call.content, call.mode) for call in calls] for calls in (targets, goldens))
    counts = Counter(target_keys), Counter(golden_keys)
    kinds = Counter(call.kind for call in (*targets, *goldens))  # for the only call of its kind, content adds nothing
    golden_positions = {
        key: place
        for place, (key, call) in enumerate(zip(golden_keys, goldens))
        if counts[1][key] == 1 and kinds[call.kind] > 2
    }
    return [
        (place, golden_positions[key])
        for place, key in enumerate(target_keys)
        if counts[0][key] == 1 and key in golden_positions
    ]


def _find_longest_increasing(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest selection of pairs in which both numbers rise (Fredman, 1975)."""
    ends: list[int] = []
    tails: list[int] = []
    predecessors: list[int] = []
    for number, (_, second) in enumerate(pairs):
        length = bisect_left(ends, second)
        predecessors.append(tails[length - 1] if length else NO_PARTNER)
        ends[length : length + 1] = [second]
        tails[length : length + 1] = [number]
    chain: list[tuple[int, int]] = []
    number = tails[-1] if tails else NO_PARTNER
    while number != NO_PARTNER:
        chain.append(pairs[number])
        number = predecessors[number]
    return chain[::-1]
