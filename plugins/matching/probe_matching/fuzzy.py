"""Fuzzy matching: whole calls whose names agree but for the call count, in order (decision D13)."""

from __future__ import annotations

from array import array

from probe_core.matching.matching import Matching, canonical_index, partners_of
from probe_core.model import How, Record
from probe_core.model.plan import Plan
from probe_core.model.run import Run
from probe_core.store.names import canonical, without_count
from probe_matching.alignment import align
from probe_matching.likeness import comparable


class Fuzzy:
    """Pairs calls that have the same name without count and the same places and shapes.

    Of all pairings that keep both orders the one with most pairs is taken, and of these the one
    with most equal full names. What is left on both sides under one full name pairs by name.
    """

    def match(self, target: Run, golden: Run, plan: Plan) -> Matching:
        """The matching of calls."""
        codes: dict[object, int] = {}
        is_loose = target.is_loose or golden.is_loose
        ours = [codes.setdefault(_signature(record, is_loose), len(codes)) for record in target.records()]
        theirs = [codes.setdefault(_signature(record, is_loose), len(codes)) for record in golden.records()]
        our_names = [canonical(key) for key in target.names()]
        their_names = [canonical(key) for key in golden.names()]
        calls = dict(align(ours, theirs, our_names, their_names))
        aligned = set(calls)
        self._pair_leftovers(calls, our_names, golden)
        partners = array("q")
        for index in range(len(target)):
            partner = calls.get(index)
            if partner is not None and index in aligned and not is_loose:
                partners.extend(range(golden.starts[partner], golden.starts[partner + 1]))
            else:
                partners.extend(partners_of(target, index, golden, partner))
        return Matching(How.FUZZY, partners)

    @staticmethod
    def _pair_leftovers(calls: dict[int, int], names: list[str], golden: Run) -> None:
        taken = set(calls.values())
        by_name = canonical_index(golden)
        for index, name in enumerate(names):
            partner = by_name.get(name)
            if index not in calls and partner is not None and partner not in taken:
                calls[index] = partner
                taken.add(partner)


def _signature(record: Record, is_loose: bool) -> object:
    slots = comparable(record, is_loose)
    places = tuple((slot.side, slot.path, slot.value.extent) for slot in slots)
    return without_count(record.key), places
