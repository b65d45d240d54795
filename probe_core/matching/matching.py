"""The result of matching, and the rows in the order of the table.

Slots are numbered through a run. A matching holds, for each target slot, the number of its
golden slot or none: eight bytes a slot, whatever the slots hold. The rows themselves are read
from the two runs as they are walked.
"""

from __future__ import annotations

import bisect
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from probe_core.model import How, Pair, Record, Slot
from probe_core.model.run import Run
from probe_core.store.names import canonical

NONE = -1


class Region(NamedTuple):
    """A stretch of calls between two pairs that have no partner: of the target, and of the golden.

    Calls are given by the indices of their records; either side may be empty.
    """

    target: tuple[int, ...]
    golden: tuple[int, ...]


@dataclass(slots=True)
class Matching:
    """Which golden slot each target slot is compared with.

    Attributes:
        how: How the pairs came together.
        partners: The golden slot's number for each target slot, or NONE.
        mapped: The target slots that a mapping file paired instead.
        regions: Where two aligned runs do not line up.
    """

    how: How = How.NAME
    partners: array[int] = field(default_factory=lambda: array("q"))
    mapped: frozenset[int] = frozenset()
    regions: list[Region] = field(default_factory=list)

    @property
    def matched(self) -> int:
        """How many target slots have a partner."""
        return len(self.partners) - self.partners.count(NONE)


def pair_slots(target: Record, golden: Record) -> list[int]:
    """For each slot of ``target`` the position of its partner in ``golden``, or NONE (decision D1).

    Equal row names pair, the k-th of a repeated name with the k-th. What is left over pairs by
    its place, for recorders of different versions name the rows of one value differently.
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
    found: dict[object, list[int]] = {}
    for position, key in zip(reversed(positions), reversed(keys)):
        found.setdefault(key, []).append(position)
    return found


def partners_of(target: Run, ours: int, golden: Run, theirs: int | None) -> Iterable[int]:
    """For each slot of one record the number of its partner in another, or NONE.

    Records whose rows have equal names, as nearly all have, pair row by row without being read.
    """
    length = target.starts[ours + 1] - target.starts[ours]
    if theirs is None:
        return [NONE] * length
    start, end = golden.starts[theirs], golden.starts[theirs + 1]
    if target.signatures[ours] == golden.signatures[theirs] and end - start == length:
        return range(start, end)
    positions = pair_slots(target.record(ours), golden.record(theirs))
    return [NONE if position == NONE else start + position for position in positions]


def canonical_index(run: Run) -> dict[str, int]:
    """The record of each name, as runs of different recorder versions agree on it."""
    return {canonical(key): index for index, key in enumerate(run.names())}


@dataclass(frozen=True, slots=True)
class OpRows:
    """The rows of one op of the target, with the golden-only rows that stand among them."""

    op: str
    pairs: tuple[Pair, ...]


class RowOrder:
    """Walks a matching in the order of the table (decision D1).

    Target slots come in the order of the target. A golden slot without partner comes directly
    after the row that holds the golden slot before it, or at the very front.
    """

    def __init__(self, matching: Matching, target: Run, golden: Run) -> None:
        self._matching = matching
        self._target = target
        self._golden = golden
        self._starts = golden.starts
        self._held = bytearray(self._starts[-1])
        for partner in matching.partners:
            if partner != NONE:
                self._held[partner] = 1
        self._ours_apart = _slots_apart((region.target for region in matching.regions), target)
        self._theirs_apart = _slots_apart((region.golden for region in matching.regions), golden)
        self.golden_only = len(self._held) - self._held.count(1)
        self.row_count = len(matching.partners) + self.golden_only

    def __iter__(self) -> Iterator[OpRows]:
        return self.ops(0, len(self._target))

    def ops(self, start: int, stop: int) -> Iterator[OpRows]:
        """The rows of the target's records from ``start`` to before ``stop``."""
        record_at = _Cursor(self._golden, self._starts)
        shown = bytearray(len(self._held))
        number = self._target.starts[start]
        for partner in self._matching.partners[:number]:
            if partner != NONE:
                shown[partner] = 1
        front = tuple(self._lonely(0, record_at)) if start == 0 else ()
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
                pairs.append(Pair(slot, record_at(partner), how))
                if not shown[partner]:
                    shown[partner] = 1
                    pairs += self._lonely(partner + 1, record_at)
            yield OpRows(record.key, tuple(pairs))
        if front:
            yield OpRows("", front)

    def _how(self, number: int) -> How:
        if number in self._ours_apart:
            return How.REGION
        return How.MAPPED if number in self._matching.mapped else self._matching.how

    def _lonely(self, start: int, record_at: _Cursor) -> Iterator[Pair]:
        number = start
        while number < len(self._held) and not self._held[number]:
            yield Pair(None, record_at(number), How.REGION if number in self._theirs_apart else How.NAME)
            number += 1


def _slots_apart(regions: Iterable[Sequence[int]], run: Run) -> frozenset[int]:
    """The numbers of the slots of the records in regions."""
    return frozenset(
        number
        for records in regions
        for record in records
        for number in range(run.starts[record], run.starts[record + 1])
    )


class _Cursor:
    """Golden slots by number, remembering the record they were last found in."""

    def __init__(self, run: Run, starts: Sequence[int]) -> None:
        self._run = run
        self._starts = starts
        self._record: Record | None = None

    def __call__(self, number: int) -> Slot:
        record = self._record
        if record is None or not (self._starts[record.index] <= number < self._starts[record.index + 1]):
            record = self._run.record(bisect.bisect_right(self._starts, number) - 1)
            self._record = record
        return record.slots[number - self._starts[record.index]]
