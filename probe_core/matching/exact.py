"""Exact matching: records of one name, then their slots by name."""

from __future__ import annotations

from probe_core.matching.matching import Matching, canonical_index, partners_of
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.store.names import canonical


class Exact:
    """Pairs by name alone; shape and dtype are compared of the pair afterwards (decision D1)."""

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """The matching of equal names."""
        matching = Matching()
        by_name: dict[str, int] | None = None
        for index, name in enumerate(target.names()):
            found = golden.find(name)
            if found is None:
                by_name = canonical_index(golden) if by_name is None else by_name
                found = by_name.get(canonical(name))
                if found is not None and target.find(golden.names()[found]) is not None:
                    found = None
            matching.partners.extend(partners_of(target, index, golden, found))
        return matching
