"""Conformance tests for matchers, as a class to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from probe_core.matching.matching import NO_PARTNER, Matching
from probe_core.model.plan import Plan
from probe_core.plugins.specs import MatcherSpec
from probe_core.testing.runs import ArrayRun, Calls

_BASE_ARRAY = np.arange(6, dtype=np.float32)


def _create_calls(*names: str) -> Calls:
    return {
        name: ([_BASE_ARRAY + place, _BASE_ARRAY.reshape(2, 3)], [_BASE_ARRAY * place])
        for place, name in enumerate(names, 1)
    }


_ALL_CALL_NAMES = tuple(f"Functional.{call}.forward" for call in ("a.0", "b.0", "a.1", "c.0"))
_RUNS: dict[str, Calls] = {
    "full": _create_calls(*_ALL_CALL_NAMES),
    "without a call": _create_calls(*_ALL_CALL_NAMES[:1], *_ALL_CALL_NAMES[2:]),
    "in another order": _create_calls(*_ALL_CALL_NAMES[::-1]),
    "of other calls": _create_calls("Functional.x.0.forward", "Functional.y.0.forward"),
    "of other shapes": {name: ([_BASE_ARRAY[:2]], [_BASE_ARRAY[:2]] * 3) for name in _ALL_CALL_NAMES},
    "with backward": _create_calls(*_ALL_CALL_NAMES, "Functional.c.0.backward", "Module.m.Block.forward.0"),
    "of one call": _create_calls(_ALL_CALL_NAMES[0]),
}


class MatcherConformance:
    """Tests for any matcher; set ``spec``, and ``mapping`` if it needs one."""

    spec: ClassVar[MatcherSpec]
    mapping: ClassVar[dict[str, str] | None] = None

    def create_plan(self) -> Plan:
        """Return the plan of a comparison with the matcher."""
        options = {self.spec.option: self.mapping} if self.spec.option else {}
        return Plan(Path("target"), Path("golden"), Path("output"), "0", options=options)

    def match(self, target: ArrayRun, golden: ArrayRun) -> Matching:
        """Return the matching of two runs by a new matcher."""
        plan = self.create_plan()
        matching = self.spec.make().match(target, golden, plan)
        assert isinstance(matching, Matching)
        return matching

    def test_spec_has_name_and_summary(self) -> None:
        """Check that the spec has a name and a summary."""
        assert self.spec.name and self.spec.summary

    def test_each_slot_has_at_most_one_partner(self) -> None:
        """Check for one entry per target slot, and at most one partner per golden slot."""
        for name, calls in _RUNS.items():
            for golden_name, golden_calls in _RUNS.items():
                target, golden = ArrayRun(calls), ArrayRun(golden_calls)
                partners = self.match(target, golden).partners
                paired = [partner for partner in partners if partner != NO_PARTNER]
                assert len(partners) == target.starts[-1], (name, golden_name)
                assert all(0 <= partner < golden.starts[-1] for partner in paired), (name, golden_name)
                assert len(set(paired)) == len(paired), (name, golden_name)

    def test_a_run_pairs_with_itself(self) -> None:
        """Check that every slot of a run pairs with itself."""
        for name, calls in _RUNS.items():
            target = ArrayRun(calls)
            assert list(self.match(target, ArrayRun(calls)).partners) == list(range(target.starts[-1])), name

    def test_regions_hold_records_of_the_runs(self) -> None:
        """Check that regions contain records of both runs only."""
        for calls in _RUNS.values():
            for golden_calls in _RUNS.values():
                target, golden = ArrayRun(calls), ArrayRun(golden_calls)
                for region in self.match(target, golden).regions:
                    assert set(region.target) <= set(range(len(target)))
                    assert set(region.golden) <= set(range(len(golden)))

    def test_results_are_repeatable(self) -> None:
        """Check that a matching does not depend on earlier ones."""
        matcher = self.spec.make()
        plan = self.create_plan()
        runs = [ArrayRun(calls) for calls in _RUNS.values()]
        pairs = [(target, golden) for target in runs for golden in runs]
        first = [list(matcher.match(*pair, plan).partners) for pair in pairs]
        again = [list(matcher.match(*pair, plan).partners) for pair in reversed(pairs)]
        assert first == again[::-1]
