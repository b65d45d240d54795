"""The kit for matchers: the installed ones pass, and each check finds the fault that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from probe_matching.hooks import probe_matchers
from support.conformance import failing

from probe_core.matching.matching import NO_PARTNER, Matching, Region
from probe_core.plugins.builtins import probe_matchers as core_matchers
from probe_core.plugins.specs import (
    MatcherSpec,
)
from probe_core.testing import (
    MatcherConformance,
)

# -- matchers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [*core_matchers(), *probe_matchers()], ids=lambda spec: spec.name)
def test_the_matchers_pass(spec: MatcherSpec, tmp_path: Path) -> None:
    assert failing(MatcherConformance, tmp_path, spec=spec, mapping={} if spec.name == "mapping" else None) == set()


class ByPlace:
    """Pairs the n-th slot with the n-th."""

    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = Matching()
        count = golden.starts[-1]
        matching.partners.extend(n if n < count else NO_PARTNER for n in range(target.starts[-1]))
        return matching


class ToTheFirst(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = Matching()
        matching.partners.extend([0] * target.starts[-1])
        return matching


class Short(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = super().match(target, golden, plan)
        matching.partners.pop()
        return matching


class Remembering(ByPlace):
    def __init__(self) -> None:
        self.calls = 0

    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        self.calls += 1
        matching = super().match(target, golden, plan)
        if self.calls > 1:
            matching.partners[0] = NO_PARTNER
        return matching


class Lost(ByPlace):
    def match(self, target: Any, golden: Any, plan: Any) -> Matching:
        matching = super().match(target, golden, plan)
        matching.regions.append(Region((99,), ()))
        return matching


@pytest.mark.parametrize(
    "matcher, faults",
    [
        (ByPlace, set()),
        (ToTheFirst, {"each_slot_has_at_most_one_partner", "a_run_pairs_with_itself"}),
        (Short, {"each_slot_has_at_most_one_partner", "a_run_pairs_with_itself"}),
        (Remembering, {"results_are_repeatable"}),
        (Lost, {"regions_hold_records_of_the_runs"}),
    ],
)
def test_a_fault_of_a_matcher_is_found(matcher: Any, faults: set[str], tmp_path: Path) -> None:
    assert failing(MatcherConformance, tmp_path, spec=MatcherSpec("mine", "mine", matcher)) == faults
