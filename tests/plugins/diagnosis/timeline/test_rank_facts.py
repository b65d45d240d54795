"""Facts about a rank survive being written, for a comparison that is resumed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.answer.verdict.suspect_finder import SuspectFinder
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.coverage import CoverageTally
from probe_diagnosis.timeline.rank_facts import RankFacts
from support.runs.answered import answered, back, normal
from support.runs.ops import BAD, BEHIND, GOOD, UNSET, argument, call, op, value


def kept() -> RankFacts:
    ops = [
        GOOD, BAD, BEHIND,
        op("Torch.x.0.forward", [UNSET, argument(), value(0, has_masked_difference=True, dtypes="a against b")], [math.inf],
           modules=("Module.m.M.forward.0",), code_line="a.py:3", is_shifted=True, golden_op="Torch.y.0.forward"),
        call("all_reduce", [0], [5], group=(0, 1), root=1),
        call("send", [0], [], peers=[(1, True)]),
    ]  # fmt: skip
    tally = CoverageTally(both=3, compared=2, first={"empty": "a"})
    tally.lacking["empty"] += 1
    return RankFacts(3, CallColumns.from_calls(ops), tally, {"Torch.t.0.forward": None}, {"Torch.g.0.forward": None})


def test_facts_survive() -> None:
    facts = kept()
    assert RankFacts.from_plain(json.loads(json.dumps(facts.plain()))) == facts


def test_a_finder_survives() -> None:
    finder = SuspectFinder()
    finder.facts = kept()
    other = SuspectFinder()
    other.restore(json.loads(json.dumps(finder.plain())))
    assert other.facts == finder.facts
    assert other.found == finder.found == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda plain: plain.pop("ops"),
        lambda plain: plain.update(ops=[[]]),
        lambda plain: plain["ops"]["values"].update(lines="AAAA"),
        lambda plain: plain["ops"]["values"].update(lines="no base64"),
        lambda plain: plain["ops"]["values"].update(suffixes=[]),
        lambda plain: plain["ops"]["values"]["suffixes"].__setitem__(0, 3),
        lambda plain: plain["ops"]["values"].update(positions=["1"]),
        lambda plain: plain["ops"]["values"].update(positions=-1),
        lambda plain: plain["ops"]["values"].update(positions=1 << 80),
        lambda plain: plain["ops"]["values"].update(count=1),
        lambda plain: plain["ops"]["values"].update(count=-1),
        lambda plain: plain["ops"]["counts"].__setitem__(0, -1),
        lambda plain: plain["ops"]["within"].pop(),
        lambda plain: plain["ops"]["within"].__setitem__(0, 99),
        lambda plain: plain.update(rank="x"),
        lambda plain: plain.update(tally={"no": 1}),
        lambda plain: plain["ops"]["keys"].pop(),
        lambda plain: plain["ops"]["communication"][0].__setitem__(1, "no api"),
        lambda plain: plain.update(target_only=3),
    ],
)
def test_damaged_facts_are_refused(damage: Any) -> None:
    plain = json.loads(json.dumps(kept().plain()))
    damage(plain)
    with pytest.raises((LookupError, TypeError, ValueError)):
        RankFacts.from_plain(plain)


# -- gradients of other outputs ----------------------------------------------------------------------------

DECODER = "Module.net.Decoder.backward.0"


def test_gradients_of_other_outputs_are_not_judged(tmp_path: Path) -> None:
    """Modules that return other intermediate results receive other gradients, which do not belong together."""
    x, y, z = (normal(seed=number) for number in range(3))
    target, golden = ({DECODER: back(received, z)} for received in ([x, y], [x, z, y, y]))
    found = answered(tmp_path, target, golden)
    assert found.answer is not None
    assert found.answer.outcome.value == "AGREE", found.answer.sentence
    assert found.answer.coverage.excused["golden_only"] == 2


def test_gradients_of_equal_outputs_are_judged(tmp_path: Path) -> None:
    x, y, z = (normal(seed=number) for number in range(3))
    target, golden = ({DECODER: back([x, given], given)} for given in (y, z))
    found = answered(tmp_path, target, golden)
    assert found.answer is not None
    assert found.answer.outcome.value == "DIVERGED"
