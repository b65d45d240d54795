"""Regions of calls that do not line up in two aligned runs (docs/pairing.md#alignment).

The inputs and outputs of a region may be equal on both sides although its calls differ, for example for a
fused operator and the calls that it replaces. So only the values at its edges are paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from probe_core.matching.matching import NO_PARTNER, Matching, Region
from probe_core.model import Kind, Record, Slot
from probe_core.model.run import Run
from probe_matching.likeness import get_content, is_unpaired, parse_place


def find_regions(target: Run, golden: Run, calls: dict[int, int]) -> Iterator[Region]:
    """Yield the regions between pairs of calls: consecutive calls of either run without partners."""
    taken = set(calls.values())
    stretch: list[int] = []
    covered: set[int] = set()
    last_partner = NO_PARTNER
    for index in range(len(target) + 1):
        partner = calls.get(index) if index < len(target) else len(golden)
        if partner is None:
            stretch.append(index)
            continue
        golden_stretch: list[int] = []
        position = last_partner + 1
        while position < len(golden) and position not in taken and position not in covered:
            golden_stretch.append(position)
            position += 1
        covered.update(golden_stretch)
        if stretch or golden_stretch:
            yield Region(tuple(stretch), tuple(golden_stretch))
        stretch, last_partner = [], partner
    rest = [position for position in range(len(golden)) if position not in taken and position not in covered]
    if rest:
        yield Region((), tuple(rest))


def pair_edges(matching: Matching, region: Region, target: Run, golden: Run) -> None:
    """Pair the values that enter a region, and those that leave it, phase by phase.

    Values of equal shape and content pair first; then, by shape, inputs of the first call and outputs of the
    last. If one side is a single call, values whose shape is unique pair as well. Single numbers, which all
    have the same shape, pair by shape only in that case.
    """
    golden_records = _group_by_phase(golden, region.golden)
    for phase, targets in _group_by_phase(target, region.target).items():
        goldens = golden_records.get(phase, [])
        for is_entering in (True, False) if goldens else ():
            edges = _Edges(
                matching, _find_flows(targets, target, is_entering), _find_flows(goldens, golden, is_entering)
            )
            edges.pair(_compute_likeness, lambda _: True)
            if 1 in (len(targets), len(goldens)):
                edges.pair(_get_extent, lambda flow: flow.at_end)
                edges.pair_unique(_get_extent)
            else:
                edges.pair(_get_extent, lambda flow: flow.at_end and bool(flow.slot.value.shape))


class _Flow(NamedTuple):
    """A value that enters or leaves a region."""

    number: int
    slot: Slot
    is_of_module: bool
    at_end: bool


class _Edges:
    """The unpaired values that enter, or leave, a region on both sides."""

    def __init__(self, matching: Matching, targets: list[_Flow], goldens: list[_Flow]) -> None:
        self._matching = matching
        self._targets, self._goldens = targets, goldens

    def pair(self, key: Callable[[_Flow], object], is_chosen: Callable[[_Flow], bool]) -> None:
        """Pair chosen values with equal keys, in order; values with the key None stay without partner."""
        free: dict[object, list[_Flow]] = {}
        for flow in filter(is_chosen, reversed(self._goldens)):
            free.setdefault(key(flow), []).append(flow)
        free.pop(None, None)
        pairs = [(flow, queue.pop()) for flow in self._targets if is_chosen(flow) and (queue := free.get(key(flow)))]
        self._assign_partners(pairs)

    def pair_unique(self, key: Callable[[_Flow], object]) -> None:
        """Pair values whose key occurs once on each side."""
        counts = [Counter(map(key, flows)) for flows in (self._targets, self._goldens)]
        unique = {item for item, count in counts[0].items() if count == 1 and counts[1][item] == 1}
        self.pair(key, lambda flow: key(flow) in unique)

    def _assign_partners(self, pairs: Sequence[tuple[_Flow, _Flow]]) -> None:
        for target, golden in pairs:
            self._matching.partners[target.number] = golden.number
        paired = {target.number for target, _ in pairs}, {golden.number for _, golden in pairs}
        self._targets = [flow for flow in self._targets if flow.number not in paired[0]]
        self._goldens = [flow for flow in self._goldens if flow.number not in paired[1]]


def _group_by_phase(run: Run, indices: Iterable[int]) -> dict[str, list[Record]]:
    records: dict[str, list[Record]] = {}
    for index in indices:
        key = run.names()[index]
        place = parse_place(key)
        records.setdefault(place[1] if place else key.rpartition(".")[2], []).append(run.record(index))
    return records


def _find_flows(records: Sequence[Record], run: Run, is_entering: bool) -> list[_Flow]:
    """Return the values that enter (or leave) the records from outside.

    Args:
        records: The calls of a region.
        run: The run that they belong to.
        is_entering: True for inputs that no earlier call returned, in order; False for outputs that no later call
            receives, in reverse order.
    """
    inside: set[object] = set()
    flows: list[_Flow] = []
    end = records[0 if is_entering else -1]
    for record in records if is_entering else reversed(records):
        start, is_of_module = run.starts[record.index], parse_place(record.key) is not None
        between = []
        for place, slot in enumerate(record.slots):
            if slot.value.kind is not Kind.TENSOR:
                continue
            flow = _Flow(start + place, slot, is_of_module, record is end)
            if slot.side.is_source is not is_entering:
                between.append(_compute_likeness(flow))
            elif not is_unpaired(slot) and _compute_likeness(flow) not in inside:
                flows.append(flow)
        inside.update(likeness for likeness in between if likeness is not None)
    return flows


def _get_extent(flow: _Flow) -> object:
    return flow.slot.value.extent


def _compute_likeness(flow: _Flow) -> object:
    """Return a value's shape, content and whether a module has it; None for uniform or unknown content."""
    numbers = flow.slot.value.statistics
    content = get_content(flow.slot)
    if content is None or (numbers.max is not None and numbers.max == numbers.min):
        return None
    return flow.slot.value.extent, content, flow.is_of_module
