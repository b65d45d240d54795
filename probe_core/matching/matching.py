"""The result of matching, and its rows in the order of the table.

The slots of a run are numbered from its first record to its last. A matching holds the number of the golden
slot for each target slot, which takes eight bytes. The rows are read from the runs when they are needed.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from probe_core.model import How, Pair, Record, Slot
from probe_core.model.run import Run
from probe_core.store.names import canonical

NONE = -1


class Region(NamedTuple):
    """Consecutive calls without partners on either side, as indices of their records; a side may be empty."""

    target: tuple[int, ...]
    golden: tuple[int, ...]


@dataclass(slots=True)
class Matching:
    """The pairs of target slots and golden slots.

    Attributes:
        how: The way in which pairs were matched.
        partners: The number of the golden slot for each target slot, or NONE.
        mapped: The target slots that a mapping file paired instead.
        regions: The calls at which two aligned runs do not line up.
    """

    how: How = How.NAME
    partners: array[int] = field(default_factory=lambda: array("q"))
    mapped: frozenset[int] = frozenset()
    regions: list[Region] = field(default_factory=list)

    @property
    def matched(self) -> int:
        """The number of target slots with a partner."""
        return len(self.partners) - self.partners.count(NONE)


def pair_slots(target: Record, golden: Record) -> list[int]:
    """Return the position in ``golden`` of the partner of each slot of ``target``, or NONE.

    Equal row names pair, the k-th of a repeated name with the k-th (docs/pairing.md#rows). The rest pairs
    by place, because recorder versions name the rows of the same value differently.
    """
    partners = [NONE] * len(target.slots)
    free = _positions(range(len(golden.slots)), [slot.name for slot in golden.slots])
    for position, slot in enumerate(target.slots):
        if queue := free.get(slot.name):
            partners[position] = queue.pop()
    if NONE in partners:
        taken = set(partners)
        rest = [position for position in range(len(golden.slots)) if position not in taken]
        places = _positions(rest, [golden.slots[position].place for position in rest])
        for position, slot in enumerate(target.slots):
            if partners[position] == NONE and (queue := places.get(slot.place)):
                partners[position] = queue.pop()
    return partners


def _positions(positions: Sequence[int], keys: Sequence[object]) -> dict[object, list[int]]:
    positions_of: dict[object, list[int]] = {}
    for position, key in zip(reversed(positions), reversed(keys)):
        positions_of.setdefault(key, []).append(position)
    return positions_of


def partners_of(target: Run, target_index: int, golden: Run, golden_index: int | None) -> Iterable[int]:
    """Return the number of the partner of each slot of a target record, or NONE.

    Records with equal row names, which most are, pair row by row without being read.

    Args:
        target: The run under test.
        target_index: The index of its record.
        golden: The reference run.
        golden_index: The index of the golden record; None if there is none.
    """
    length = target.starts[target_index + 1] - target.starts[target_index]
    if golden_index is None:
        return [NONE] * length
    start, end = golden.starts[golden_index], golden.starts[golden_index + 1]
    if target.signatures[target_index] == golden.signatures[golden_index] and end - start == length:
        return range(start, end)
    positions = pair_slots(target.record(target_index), golden.record(golden_index))
    return [NONE if position == NONE else start + position for position in positions]


def canonical_index(run: Run) -> dict[str, int]:
    """Return the index of each record by its canonical name, which recorder versions share."""
    return {canonical(key): index for index, key in enumerate(run.names())}


@dataclass(frozen=True, slots=True)
class OpRows:
    """The rows of one op of the target, with the golden-only rows among them."""

    op: str
    pairs: tuple[Pair, ...]


class RowOrder:
    """The pairs of a matching in the order of the table (docs/pairing.md#rows).

    Target slots come in the order of the target. A golden slot without partner comes directly
    after the row that holds the golden slot before it, or at the very front.
    """

    def __init__(self, matching: Matching, target: Run, golden: Run) -> None:
        self._matching = matching
        self._target = target
        self._golden = golden
        self._held = bytearray(golden.starts[-1])
        for partner in matching.partners:
            if partner != NONE:
                self._held[partner] = 1
        self._target_regions = _slots_apart((region.target for region in matching.regions), target)
        self._golden_regions = _slots_apart((region.golden for region in matching.regions), golden)
        self.golden_only = len(self._held) - self._held.count(1)
        self.row_count = len(matching.partners) + self.golden_only

    def __iter__(self) -> Iterator[OpRows]:
        return self.ops(0, len(self._target))

    def ops(self, start: int, stop: int) -> Iterator[OpRows]:
        """Yield the rows of the target's records from ``start`` up to ``stop``."""
        slot_at = _slots_by_number(self._golden)
        shown = bytearray(len(self._held))
        number = self._target.starts[start]
        for partner in self._matching.partners[:number]:
            if partner != NONE:
                shown[partner] = 1
        front = tuple(self._unpaired(0, slot_at)) if start == 0 else ()
        for record in map(self._target.record, range(start, stop)):
            pairs: list[Pair] = list(front)
            front = ()
            for slot in record.slots:
                partner = self._matching.partners[number]
                how = self._how(number)
                number += 1
                if partner == NONE:
                    pairs.append(Pair(slot, None, how if how is How.REGION else How.NAME))
                    continue
                pairs.append(Pair(slot, slot_at(partner), how))
                if not shown[partner]:
                    shown[partner] = 1
                    pairs += self._unpaired(partner + 1, slot_at)
            yield OpRows(record.key, tuple(pairs))
        if front:
            yield OpRows("", front)

    def _how(self, number: int) -> How:
        if number in self._target_regions:
            return How.REGION
        return How.MAPPED if number in self._matching.mapped else self._matching.how

    def _unpaired(self, start: int, slot_at: Callable[[int], Slot]) -> Iterator[Pair]:
        number = start
        while number < len(self._held) and not self._held[number]:
            yield Pair(None, slot_at(number), How.REGION if number in self._golden_regions else How.NAME)
            number += 1


def _slots_apart(regions: Iterable[Sequence[int]], run: Run) -> frozenset[int]:
    """Return the numbers of the slots of the records in regions."""
    return frozenset(
        number
        for records in regions
        for record in records
        for number in range(run.starts[record], run.starts[record + 1])
    )


def _slots_by_number(run: Run) -> Callable[[int], Slot]:
    """Return a function that gives a run's slots by number, and keeps the last record."""
    record = lru_cache(1)(run.record)
    starts = run.starts

    def slot(number: int) -> Slot:
        index = bisect.bisect_right(starts, number) - 1
        return record(index).slots[number - starts[index]]

    return slot
