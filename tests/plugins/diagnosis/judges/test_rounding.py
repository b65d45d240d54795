"""Gradients that sums cancelled: what is left of them is rounding."""

from __future__ import annotations

import pytest
from probe_diagnosis.judges.rounding import RoundingJudge
from support.measuring import tensor_value

from probe_core.model import Drift, Level, MatchKind, Op, Pair, Row, Side, Slot, Verdict

NOISE = 64 * 2.0**-23


def row(extent: str, difference: float, scale: float, *, bad: bool, side: Side = Side.PARAMETERS_GRAD) -> Row:
    slot = Slot("x", side, "x", tensor_value(extent=extent))
    level = Level.ERROR if bad else Level.PASS
    verdict = Verdict(level, "No" if bad else "Yes", failed=bad, drift=Drift(difference, scale, NOISE, 10.0))
    return Row(Pair(slot, slot, MatchKind.NAME), "op", {}, verdict)


GRADIENT = "Cell.conv.Conv2d.parameters_grad.0"
WEIGHT = row("[8, 3, 3, 3]", 1e-9, 0.02, bad=False)


@pytest.mark.parametrize(
    ("op", "bias", "level"),
    [
        (GRADIENT, row("[8]", 1e-8, 6e-9, bad=True), Level.PASS),
        (GRADIENT, row("[8]", 1e-3, 6e-9, bad=True), Level.ERROR),  # more than rounding of the weight's
        (GRADIENT, row("[8, 3, 3, 3]", 1e-8, 6e-9, bad=True), Level.ERROR),  # no sum
        ("Mint.sum.0.backward", row("[8]", 1e-8, 6e-9, bad=True, side=Side.OUTPUT), Level.PASS),
        ("Mint.sum.0.backward", row("[8]", 1e-8, 6e-9, bad=True, side=Side.INPUT), Level.ERROR),
        ("Mint.sum.0.forward", row("[8]", 1e-8, 6e-9, bad=True, side=Side.OUTPUT), Level.ERROR),
    ],
)
def test_only_what_a_sum_cancelled_is_rounding(op: str, bias: Row, level: Level) -> None:
    found = RoundingJudge().judge(Op(op), [bias, WEIGHT])[0].verdict
    assert found.level is level and found.label == "No"
    assert found.failed is (level is Level.ERROR)
    assert found.drift is None  # what fails is no drift


def test_rows_that_pass_stay_as_they_are() -> None:
    assert RoundingJudge().judge(Op(GRADIENT), [WEIGHT]) == {}
