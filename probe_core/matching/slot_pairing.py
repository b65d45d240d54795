"""Pairing of the values of two records: by the names of their rows, then by their places."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from probe_core.matching.matching import NO_PARTNER
from probe_core.model import Record
from probe_core.model.run import Run
from probe_core.store.names import canonicalize


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


def pair_slots(target: Record, golden: Record) -> list[int]:
    """Return the position in ``golden`` of the partner of each slot of ``target``, or ``NO_PARTNER``.

    Slots with equal row names are paired, the k-th of a repeated name with the k-th (docs/pairing.md#rows). The
    slots that remain are paired by their places, because recorder versions name the rows of a value differently.
    """
    partners = [NO_PARTNER] * len(target.slots)
    golden_names = [slot.name for slot in golden.slots]
    _pair_equal_keys(partners, [slot.name for slot in target.slots], range(len(golden.slots)), golden_names)
    if NO_PARTNER in partners:
        paired = set(partners)
        free = [position for position in range(len(golden.slots)) if position not in paired]
        golden_places = [golden.slots[position].place for position in free]
        _pair_equal_keys(partners, [slot.place for slot in target.slots], free, golden_places)
    return partners


def _pair_equal_keys(
    partners: list[int], keys: Sequence[object], free: Sequence[int], free_keys: Sequence[object]
) -> None:
    """Pair the slots without a partner with the ``free`` positions that have equal keys, in order."""
    positions_by_key: dict[object, list[int]] = {}
    for position, key in zip(reversed(free), reversed(free_keys)):  # the first position is the end of its list
        positions_by_key.setdefault(key, []).append(position)
    for slot, key in enumerate(keys):
        if partners[slot] == NO_PARTNER and (positions := positions_by_key.get(key)):
            partners[slot] = positions.pop()


def index_by_canonical_name(run: Run) -> dict[str, int]:
    """Return the index of each record by its canonical name, which recorder versions share."""
    return {canonicalize(key): index for index, key in enumerate(run.names())}
