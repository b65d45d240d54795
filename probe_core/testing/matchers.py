"""What every matcher must do, as a class of tests to subclass."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from probe_core.matching.matching import NONE, Matching
from probe_core.model.plan import Plan
from probe_core.plugins.specs import MatcherSpec
from probe_core.testing.runs import ArrayRun, Calls

_X = np.arange(6, dtype=np.float32)


def _calls(*names: str) -> Calls:
    return {name: ([_X + place, _X.reshape(2, 3)], [_X * place]) for place, name in enumerate(names, 1)}


_FULL = tuple(f"Functional.{call}.forward" for call in ("a.0", "b.0", "a.1", "c.0"))
_RUNS: dict[str, Calls] = {
    "full": _calls(*_FULL),
    "without a call": _calls(*_FULL[:1], *_FULL[2:]),
    "in another order": _calls(*_FULL[::-1]),
    "of other calls": _calls("Functional.x.0.forward", "Functional.y.0.forward"),
    "of other shapes": {name: ([_X[:2]], [_X[:2]] * 3) for name in _FULL},
    "with backward": _calls(*_FULL, "Functional.c.0.backward", "Module.m.Block.forward.0"),
    "of one call": _calls(_FULL[0]),
}


class MatcherConformance:
    """Tests that any matcher passes; set ``spec``, and ``mapping`` where it needs one."""

    spec: ClassVar[MatcherSpec]
    mapping: ClassVar[dict[str, str] | None] = None

    def match(self, target: ArrayRun, golden: ArrayRun) -> Matching:
        """The matching of two runs by a fresh matcher."""
        plan = Plan(Path("target"), Path("golden"), Path("output"), "0", mapping=self.mapping)
        matching = self.spec.make().match(target, golden, plan)
        assert isinstance(matching, Matching)
        return matching

    def test_spec_names_it(self) -> None:
        """A name to ask for and a summary to list."""
        assert self.spec.name and self.spec.summary

    def test_each_slot_has_one_partner_or_none(self) -> None:
        """Whatever the runs, every target slot has one entry, and no golden slot two partners."""
        for name, calls in _RUNS.items():
            for other, theirs in _RUNS.items():
                target, golden = ArrayRun(calls), ArrayRun(theirs)
                partners = self.match(target, golden).partners
                found = [partner for partner in partners if partner != NONE]
                assert len(partners) == target.starts[-1], (name, other)
                assert all(0 <= partner < golden.starts[-1] for partner in found), (name, other)
                assert len(set(found)) == len(found), (name, other)

    def test_a_run_pairs_with_itself(self) -> None:
        """Every slot of a run finds itself."""
        for name, calls in _RUNS.items():
            target = ArrayRun(calls)
            assert list(self.match(target, ArrayRun(calls)).partners) == list(range(target.starts[-1])), name

    def test_regions_hold_records_of_the_runs(self) -> None:
        """A region names records that there are."""
        for calls in _RUNS.values():
            for theirs in _RUNS.values():
                target, golden = ArrayRun(calls), ArrayRun(theirs)
                for region in self.match(target, golden).regions:
                    assert set(region.target) <= set(range(len(target)))
                    assert set(region.golden) <= set(range(len(golden)))

    def test_same_answer_twice(self) -> None:
        """One matcher gives one answer for two runs, whatever it matched before."""
        matcher = self.spec.make()
        plan = Plan(Path("target"), Path("golden"), Path("output"), "0", mapping=self.mapping)
        runs = [ArrayRun(calls) for calls in _RUNS.values()]
        pairs = [(one, other) for one in runs for other in runs]
        first = [list(matcher.match(*pair, plan).partners) for pair in pairs]
        again = [list(matcher.match(*pair, plan).partners) for pair in reversed(pairs)]
        assert first == again[::-1]
