"""The result of matching, and its rows in the order of the table.

The slots of a run are numbered from its first record to its last. A matching holds the number of the golden
slot for each target slot, which takes eight bytes. The rows are read from the runs when they are needed.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from probe_core.exports import create_deprecated_exporter
from probe_core.model import MatchKind, Op, Record
from probe_core.model.batches import MATCH_KINDS, PairSide, RowBatch
from probe_core.model.columns import Array
from probe_core.model.run import Run
from probe_core.store.names import canonicalize

NO_PARTNER = -1
ROW_COST = 16_384
"""Fixed cost of a row, as a number of elements that take the same time to measure."""


class Region(NamedTuple):
    """Consecutive calls without partners on either side, as indices of their records; a side may be empty."""

    target: tuple[int, ...]
    golden: tuple[int, ...]


@dataclass(slots=True)
class Matching:
    """The pairs of target slots and golden slots.

    Attributes:
        match_kind: The way in which pairs were matched.
        partners: The number of the golden slot for each target slot, or ``NO_PARTNER``.
        mapped: The target slots that a mapping file paired instead.
        regions: The calls at which two aligned runs do not line up.
    """

    match_kind: MatchKind = MatchKind.NAME
    partners: array[int] = field(default_factory=lambda: array("q"))
    mapped: frozenset[int] = frozenset()
    regions: list[Region] = field(default_factory=list)

    @property
    def matched(self) -> int:
        """The number of target slots with a partner."""
        return len(self.partners) - self.partners.count(NO_PARTNER)


def pair_slots(target: Record, golden: Record) -> list[int]:
    """Return the position in ``golden`` of the partner of each slot of ``target``, or ``NO_PARTNER``.

    Equal row names pair, the k-th of a repeated name with the k-th (docs/pairing.md#rows). The rest pairs
    by place, because recorder versions name the rows of the same value differently.
    """
    partners = [NO_PARTNER] * len(target.slots)
    free = _group_positions(range(len(golden.slots)), [slot.name for slot in golden.slots])
    for position, slot in enumerate(target.slots):
        if queue := free.get(slot.name):
            partners[position] = queue.pop()
    if NO_PARTNER in partners:
        taken = set(partners)
        rest = [position for position in range(len(golden.slots)) if position not in taken]
        places = _group_positions(rest, [golden.slots[position].place for position in rest])
        for position, slot in enumerate(target.slots):
            if partners[position] == NO_PARTNER and (queue := places.get(slot.place)):
                partners[position] = queue.pop()
    return partners


def _group_positions(positions: Sequence[int], keys: Sequence[object]) -> dict[object, list[int]]:
    positions_of: dict[object, list[int]] = {}
    for position, key in zip(reversed(positions), reversed(keys)):
        positions_of.setdefault(key, []).append(position)
    return positions_of


def find_partners(target: Run, target_index: int, golden: Run, golden_index: int | None) -> Iterable[int]:
    """Return the number of the partner of each slot of a target record, or ``NO_PARTNER``.

    Records with equal row names, which most are, pair row by row without being read. ``golden_index`` is None
    if there is no golden record.
    """
    length = target.starts[target_index + 1] - target.starts[target_index]
    if golden_index is None:
        return [NO_PARTNER] * length
    start, end = golden.starts[golden_index], golden.starts[golden_index + 1]
    if target.signatures[target_index] == golden.signatures[golden_index] and end - start == length:
        return range(start, end)
    positions = pair_slots(target.record(target_index), golden.record(golden_index))
    return [NO_PARTNER if position == NO_PARTNER else start + position for position in positions]


def index_by_canonical_name(run: Run) -> dict[str, int]:
    """Return the index of each record by its canonical name, which recorder versions share."""
    return {canonicalize(key): index for index, key in enumerate(run.names())}


class RowOrder:
    """The rows of the table in their order (docs/pairing.md#rows).

    Target values come in the order of the target. A golden value without partner comes directly after the row
    that holds the golden value before it, or at the very front.

    Attributes:
        row_count: The number of rows.
    """

    def __init__(self, matching: Matching, target: Run, golden: Run) -> None:
        self._target, self._golden = target, golden
        self.ops = target.names() or [""]
        partners = np.asarray(matching.partners, np.int64)
        numbers, golden_numbers = np.arange(len(partners)), np.arange(golden.starts[-1])
        holder = np.full(len(golden_numbers), NO_PARTNER)  # the first row of the target with each golden value
        paired = np.flatnonzero(partners != NO_PARTNER)[::-1]
        holder[partners[paired]] = paired
        alone = np.flatnonzero(holder == NO_PARTNER)
        last_held = np.maximum.accumulate(np.where(holder == NO_PARTNER, NO_PARTNER, golden_numbers))[alone]
        above = np.append(holder, NO_PARTNER)[last_held]
        order = np.argsort(np.concatenate((numbers, above)), kind="stable")
        self._targets = np.concatenate((numbers, np.full(len(alone), NO_PARTNER)))[order]
        self._goldens = np.concatenate((partners, alone))[order]
        match_codes = np.full(len(partners), MATCH_KINDS.index(matching.match_kind))
        match_codes[np.array([*matching.mapped], int)] = MATCH_KINDS.index(MatchKind.MAPPED)
        match_codes[partners == NO_PARTNER] = MATCH_KINDS.index(MatchKind.NAME)
        golden_match_codes = np.full(len(golden_numbers), MATCH_KINDS.index(MatchKind.NAME))
        for region in matching.regions:
            _mark_region(match_codes, target, region.target)
            _mark_region(golden_match_codes, golden, region.golden)
        self._how = np.concatenate((match_codes, golden_match_codes[alone]))[order]
        record_of = np.repeat(np.arange(len(target)), np.diff(np.asarray(target.starts)))
        records = np.concatenate((record_of, np.append(record_of, 0)[above]))
        counts = np.bincount(records, minlength=len(self.ops))
        self._starts = np.concatenate(([0], np.cumsum(counts)))
        self.row_count = len(order)
        self._translations: dict[str, Array] = {}

    def compute_costs(self) -> Array:
        """Return the cost of measuring the tensors of each row, in elements."""
        values = self._target.values
        sizes = np.array([float(math.prod(shape or ())) for _, shape in values.extents] or [0.0])
        costs: Array = ROW_COST + np.where(self._targets == NO_PARTNER, 0, sizes[values.extent[self._targets]])
        return costs

    def yield_spans(self, start: int, stop: int, limit: float, costs: Array | None = None) -> Iterator[tuple[int, int]]:
        """Split the ops from ``start`` up to ``stop`` into ranges of at most ``limit`` rows, or of one op.

        With ``costs`` of the rows, ``limit`` is the largest sum of them.
        """
        sums = self._starts if costs is None else np.concatenate(([0], np.cumsum(costs)))[self._starts]
        while start < stop:
            end = int(np.searchsorted(sums, sums[start] + limit, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    def create_batch(
        self,
        start: int,
        stop: int,
        create_op: Callable[[str], Op] = Op,
        find_stack: Callable[[str], tuple[str, ...] | None] = lambda op: None,
    ) -> RowBatch:
        """Return the rows of the ops from ``start`` up to ``stop``."""
        first, last = self._starts[start], self._starts[stop]
        return RowBatch(
            start,
            self.ops[start:stop],
            self._starts[start : stop + 1] - first,
            PairSide(self._target.values, self._targets[first:last]),
            PairSide(self._golden.values, self._goldens[first:last]),
            self._how[first:last],
            create_op,
            find_stack,
            self._translations,
        )


def _mark_region(match_codes: Array, run: Run, records: Sequence[int]) -> None:
    """Set the way of matching of all values of the records of a region."""
    for record in records:
        match_codes[run.starts[record] : run.starts[record + 1]] = MATCH_KINDS.index(MatchKind.REGION)


__getattr__ = create_deprecated_exporter(__name__, {}, {"partners_of": "find_partners"})
