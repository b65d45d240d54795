"""Fuzzy matching: whole calls whose names agree except for the call count (docs/pairing.md#fuzzy)."""

from __future__ import annotations

from array import array

from probe_core.matching.matching import Matching
from probe_core.matching.slot_pairing import find_partners, index_by_canonical_name
from probe_core.model import MatchKind, Record
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.store.names import canonicalize, drop_count
from probe_matching.alignment import CallCodes, align
from probe_matching.likeness import select_comparable_slots


class FuzzyMatcher:
    """Matcher of calls with the same name (without count), places and shapes.

    Of all pairings that keep the order of both runs, it takes the one with the most pairs, and of these the
    one with the most equal full names. Remaining calls with equal full names pair by name.
    """

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """Return the matching of calls."""
        codes: dict[object, int] = {}
        is_loose = target.is_loose or golden.is_loose
        target_codes = [
            codes.setdefault(_compute_signature(record, is_loose), len(codes)) for record in target.records()
        ]
        golden_codes = [
            codes.setdefault(_compute_signature(record, is_loose), len(codes)) for record in golden.records()
        ]
        target_names = [canonicalize(key) for key in target.names()]
        golden_names = [canonicalize(key) for key in golden.names()]
        calls = dict(align(CallCodes(target_codes, target_names), CallCodes(golden_codes, golden_names)))
        aligned = set(calls)
        self._pair_leftovers(calls, target_names, golden)
        partners = array("q")
        for index in range(len(target)):
            partner = calls.get(index)
            if partner is not None and index in aligned and not is_loose:
                partners.extend(range(golden.starts[partner], golden.starts[partner + 1]))
            else:
                partners.extend(find_partners(target, index, golden, partner))
        return Matching(MatchKind.FUZZY, partners)

    @staticmethod
    def _pair_leftovers(calls: dict[int, int], names: list[str], golden: Run) -> None:
        taken = set(calls.values())
        by_name = index_by_canonical_name(golden)
        for index, name in enumerate(names):
            partner = by_name.get(name)
            if index not in calls and partner is not None and partner not in taken:
                calls[index] = partner
                taken.add(partner)


def _compute_signature(record: Record, is_loose: bool) -> object:
    slots = select_comparable_slots(record, is_loose)
    places = tuple((slot.side, slot.path, slot.value.extent) for slot in slots)
    return drop_count(record.key), places
