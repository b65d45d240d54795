"""Exact matching: records of equal names, then their slots by name."""

from __future__ import annotations

from probe_core.matching.matching import Matching
from probe_core.matching.slot_pairing import find_partners, index_by_canonical_name
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.store.names import canonicalize


class ExactMatcher:
    """Matcher that pairs by name alone; shape and dtype are compared afterwards (docs/pairing.md#exact)."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Return the matching of equal names."""
        matching = Matching()
        by_name: dict[str, int] | None = None
        for index, name in enumerate(target.names()):
            golden_index = golden.find(name)
            if golden_index is None:
                by_name = index_by_canonical_name(golden) if by_name is None else by_name
                golden_index = by_name.get(canonicalize(name))
                if golden_index is not None and target.find(golden.names()[golden_index]) is not None:
                    golden_index = None  # this golden record pairs with another target record, which has its name
            matching.partners.extend(find_partners(target, index, golden, golden_index))
        return matching
