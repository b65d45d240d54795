"""Exact matching: records of one name, then their slots by name."""

from __future__ import annotations

from probe_core.matching.matching import NONE, Matching, canonical_index, pair_slots, slot_starts
from probe_core.store.names import canonical
from probe_core.store.run import Run


class Exact:
    """Pairs by name alone; shape and dtype are compared of the pair afterwards (decision D1)."""

    def match(self, target: Run, golden: Run) -> Matching:
        """The matching of equal names."""
        matching = Matching()
        starts = slot_starts(golden)
        by_name: dict[str, int] | None = None
        for record in target.records():
            found = golden.find(record.key)
            if found is None:
                by_name = canonical_index(golden) if by_name is None else by_name
                found = by_name.get(canonical(record.key))
                if found is not None and target.find(golden.names()[found]) is not None:
                    found = None
            if found is None:
                matching.partners.extend([NONE] * len(record.slots))
                continue
            start = starts[found]
            matching.partners.extend(
                NONE if position == NONE else start + position
                for position in pair_slots(record, golden.record(found))
            )
        return matching
