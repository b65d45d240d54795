"""Facts about a rank survive being written, for a comparison that is resumed."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from probe_diagnosis.answer.coverage import Tally
from probe_diagnosis.answer.kept import RankFacts
from probe_diagnosis.answer.suspects import Suspects
from support.runs.ops import BAD, BEHIND, GOOD, UNSET, argument, call, op, value


def kept() -> RankFacts:
    ops = [
        GOOD, BAD, BEHIND,
        op("Torch.x.0.forward", [UNSET, argument(), value(0, masked=True, dtypes="a against b")], [math.inf],
           within=("Module.m.M.forward.0",), where="a.py:3", is_shifted=True, lacking=2, golden="Torch.y.0.forward",
           agrees=True),
        call("all_reduce", [0], [5], group=(0, 1), root=1),
        call("send", [0], [], peers=[(1, True)]),
    ]  # fmt: skip
    tally = Tally(both=3, compared=2, first={"empty": "a"})
    tally.lacking["empty"] += 1
    return RankFacts(3, ops, tally, {"Torch.t.0.forward": None}, {"Torch.g.0.forward": None})


def test_facts_survive() -> None:
    facts = kept()
    assert RankFacts.of(json.loads(json.dumps(facts.plain()))) == facts


def test_a_finder_survives() -> None:
    finder = Suspects()
    finder.facts = kept()
    other = Suspects()
    other.restore(json.loads(json.dumps(finder.plain())))
    assert other.facts == finder.facts
    assert other.found == finder.found == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain.pop("ops"),
        lambda plain: plain.update(ops=[[]]),
        lambda plain: plain.update(rank="x"),
        lambda plain: plain.update(tally={"no": 1}),
        lambda plain: plain["ops"][1].pop(),
        lambda plain: plain["ops"][1][1][0].__setitem__(1, "no side"),
        lambda plain: plain.update(target_only=3),
    ],
)
def test_damaged_facts_are_refused(damage: Any) -> None:
    plain = json.loads(json.dumps(kept().plain()))
    damage(plain)
    with pytest.raises((LookupError, TypeError, ValueError)):
        RankFacts.of(plain)
