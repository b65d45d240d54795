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
from probe_core.store.names import parse_module_key
from probe_matching.likeness import get_content_key
from probe_matching.renamed_run import is_unpaired


def find_regions(target: Run, golden: Run, partner_by_index: dict[int, int]) -> Iterator[Region]:
    """Yield the regions between pairs of calls: consecutive calls of either run without partners.

    Args:
        target: The target.
        golden: The golden.
        partner_by_index: The index of the golden call, by the index of the target call.
    """
    paired_golden = set(partner_by_index.values())
    yielded_golden: set[int] = set()
    unpaired_target: list[int] = []
    last_partner = NO_PARTNER
    for index in range(len(target) + 1):
        partner = partner_by_index.get(index) if index < len(target) else len(golden)
        if partner is None:
            unpaired_target.append(index)
            continue
        unpaired_golden: list[int] = []
        position = last_partner + 1
        while position < len(golden) and position not in paired_golden and position not in yielded_golden:
            unpaired_golden.append(position)
            position += 1
        yielded_golden.update(unpaired_golden)
        if unpaired_target or unpaired_golden:
            yield Region(tuple(unpaired_target), tuple(unpaired_golden))
        unpaired_target, last_partner = [], partner
    covered_golden = paired_golden | yielded_golden
    remaining_golden = [index for index in range(len(golden)) if index not in covered_golden]
    if remaining_golden:
        yield Region((), tuple(remaining_golden))


def pair_edges(matching: Matching, region: Region, target: Run, golden: Run) -> None:
    """Pair the values that enter a region and the values that leave it, separately for each phase.

    Values with equal shape and content are paired first. Then the inputs of the first call and the outputs of the
    last call are paired by shape. If one side is a single call, values with a unique shape are paired as well. 0-d
    tensors, which all have the same shape, are paired by shape only in this case.
    """
    golden_records = _group_by_phase(golden, region.golden)
    for phase, targets in _group_by_phase(target, region.target).items():
        goldens = golden_records.get(phase, [])
        if not goldens:
            continue
        for is_entering in (True, False):
            edges = _Edges(
                matching,
                _find_edge_values(targets, target, is_entering),
                _find_edge_values(goldens, golden, is_entering),
            )
            edges.pair(_compute_likeness, lambda _: True)
            if 1 in (len(targets), len(goldens)):
                edges.pair(_get_extent, lambda edge_value: edge_value.is_in_edge_call)
                edges.pair_unique(_get_extent)
            else:
                edges.pair(
                    _get_extent, lambda edge_value: edge_value.is_in_edge_call and bool(edge_value.slot.value.shape)
                )


class _EdgeValue(NamedTuple):
    """A value that enters or leaves a region.

    Attributes:
        number: Index of the slot in the run.
        slot: The slot of the value.
        is_of_module: True if the value belongs to a module.
        is_in_edge_call: True if it enters the first call, or leaves the last call, of the region.
    """

    number: int
    slot: Slot
    is_of_module: bool
    is_in_edge_call: bool


class _Edges:
    """The unpaired values that enter, or leave, a region on both sides."""

    def __init__(self, matching: Matching, targets: list[_EdgeValue], goldens: list[_EdgeValue]) -> None:
        self._matching = matching
        self._targets, self._goldens = targets, goldens

    def pair(self, key: Callable[[_EdgeValue], object], is_chosen: Callable[[_EdgeValue], bool]) -> None:
        """Pair chosen values with equal keys, in order; values with the key None stay without partner."""
        goldens_by_key: dict[object, list[_EdgeValue]] = {}
        for edge_value in filter(is_chosen, reversed(self._goldens)):
            goldens_by_key.setdefault(key(edge_value), []).append(edge_value)
        goldens_by_key.pop(None, None)
        pairs: list[tuple[_EdgeValue, _EdgeValue]] = []
        for edge_value in filter(is_chosen, self._targets):
            goldens = goldens_by_key.get(key(edge_value))
            if goldens:
                pairs.append((edge_value, goldens.pop()))
        self._assign_partners(pairs)

    def pair_unique(self, key: Callable[[_EdgeValue], object]) -> None:
        """Pair values whose key occurs once on each side."""
        counts = [Counter(map(key, edge_values)) for edge_values in (self._targets, self._goldens)]
        unique = {item for item, count in counts[0].items() if count == 1 and counts[1][item] == 1}
        self.pair(key, lambda edge_value: key(edge_value) in unique)

    def _assign_partners(self, pairs: Sequence[tuple[_EdgeValue, _EdgeValue]]) -> None:
        for target, golden in pairs:
            self._matching.partners[target.number] = golden.number
        paired = {target.number for target, _ in pairs}, {golden.number for _, golden in pairs}
        self._targets = [edge_value for edge_value in self._targets if edge_value.number not in paired[0]]
        self._goldens = [edge_value for edge_value in self._goldens if edge_value.number not in paired[1]]


def _group_by_phase(run: Run, indices: Iterable[int]) -> dict[str, list[Record]]:
    records: dict[str, list[Record]] = {}
    for index in indices:
        key = run.names()[index]
        module = parse_module_key(key)
        records.setdefault(module.phase if module else key.rpartition(".")[2], []).append(run.record(index))
    return records


def _find_edge_values(records: Sequence[Record], run: Run, is_entering: bool) -> list[_EdgeValue]:
    """Return the values that enter (or leave) the records from outside.

    Args:
        records: The calls of a region.
        run: The run that they belong to.
        is_entering: True for inputs that no earlier call returned, in order; False for outputs that no later call
            receives, in reverse order.
    """
    internal_likenesses: set[object] = set()
    edge_values: list[_EdgeValue] = []
    edge_record = records[0 if is_entering else -1]
    for record in records if is_entering else reversed(records):
        start, is_of_module = run.starts[record.index], parse_module_key(record.key) is not None
        opposite_likenesses: list[object] = []
        for place, slot in enumerate(record.slots):
            if slot.value.kind is not Kind.TENSOR:
                continue
            edge_value = _EdgeValue(start + place, slot, is_of_module, record is edge_record)
            if slot.side.is_source is not is_entering:
                opposite_likenesses.append(_compute_likeness(edge_value))
            elif not is_unpaired(slot) and _compute_likeness(edge_value) not in internal_likenesses:
                edge_values.append(edge_value)
        internal_likenesses.update(likeness for likeness in opposite_likenesses if likeness is not None)
    return edge_values


def _get_extent(edge_value: _EdgeValue) -> object:
    return edge_value.slot.value.extent


def _compute_likeness(edge_value: _EdgeValue) -> object:
    """Return the shape and the content of a value, and whether it belongs to a module.

    Return None if the content is uniform or unknown.
    """
    numbers = edge_value.slot.value.statistics
    content = get_content_key(edge_value.slot)
    if content is None or (numbers.max is not None and numbers.max == numbers.min):
        return None
    return edge_value.slot.value.extent, content, edge_value.is_of_module
