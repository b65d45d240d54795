"""The verdict on a row of the table of statistics: where it warns, and which warnings count as errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
from probe_metrics.statistics_result import StatisticsResult
from support.measuring import above, scalar_value, tensor_value

from probe_core.model import Level, Reason, Statistics, Value, Verdict
from probe_core.testing import pair_of_values

nan, inf = math.nan, math.inf


def statistics_result(target: Value | None, golden: Value | None) -> Verdict:
    return StatisticsResult().judge(pair_of_values(target, golden), {})


def of_one(target: Any, golden: Any, place: str = "max") -> Verdict:
    """One statistic differs; the others say a tensor of magnitude 1."""
    plain = {"max": 1.0, "min": -1.0, "mean": 0.5, "norm": 2.0}
    first, second = (tensor_value(Statistics(**{**plain, place: value})) for value in (target, golden))
    return statistics_result(first, second)


@pytest.mark.parametrize("place", ["max", "min", "mean", "norm"])
@pytest.mark.parametrize(
    ("target", "golden", "label"),
    [
        pytest.param(1.5, 1.0, "", id="exactly half"),
        pytest.param(above(1.5), 1.0, "Warning", id="just past half"),
        pytest.param(0.5, 1.0, "", id="exactly half below"),
        pytest.param(0.4999999999, 1.0, "Warning", id="just past half below"),
        pytest.param(-1.5, -1.0, "", id="exactly half, negative"),
        pytest.param(above(1.5) * -1, -1.0, "Warning", id="just past half, negative"),
        pytest.param(1.0, -1.0, "Warning", id="the sign"),
        pytest.param(1.6, 1.0, "Warning", id="conflict C1: the golden is the denominator"),
        pytest.param(1.0, 1.6, "", id="conflict C1, sides changed"),
        pytest.param(3, 2, "", id="integers, exactly half"),
        pytest.param(4, 2, "Warning", id="integers"),
        # the golden is zero: over the larger magnitude and 1e-10
        pytest.param(0.0, 0.0, "", id="both zero"),
        pytest.param(-0.0, 0.0, "", id="both zero, signs differ"),
        pytest.param(0.01, 0.0, "Warning", id="against zero"),
        pytest.param(-0.01, 0.0, "Warning", id="below zero against zero"),
        pytest.param(1e-10, 0.0, "", id="against zero, exactly half"),
        pytest.param(1.000001e-10, 0.0, "Warning", id="against zero, just past half"),
        pytest.param(0.0, 0.01, "Warning", id="zero against something"),
        # statistics that are not finite
        pytest.param(nan, 1.0, "Warning", id="nan on one side"),
        pytest.param(1.0, nan, "Warning", id="nan on the golden's side"),
        pytest.param(nan, nan, "", id="nan on both"),
        pytest.param(inf, 1.0, "Warning", id="inf on one side"),
        pytest.param(1.0, -inf, "Warning", id="-inf on the golden's side"),
        pytest.param(inf, inf, "", id="inf on both"),
        pytest.param(inf, -inf, "Warning", id="inf of both signs"),
        pytest.param(nan, inf, "Warning", id="nan against inf"),
        pytest.param(nan, 0.0, "Warning", id="nan against zero"),
        pytest.param("a", "b", "Warning", id="texts that differ"),
        pytest.param("a", "a", "", id="texts that agree"),
        pytest.param(True, False, "Warning", id="truth values that differ"),
        pytest.param(True, True, "", id="truth values that agree"),
        pytest.param(5.0, True, "Warning", id="a number against a truth value"),
        pytest.param(1.0, True, "", id="one against true"),
        pytest.param("a", 1.0, "Warning", id="a text against a number"),
        pytest.param(None, 5.0, "", id="null on one side"),
        pytest.param(5.0, None, "", id="null on the golden's side"),
        pytest.param(None, None, "", id="null on both"),
        pytest.param(None, nan, "", id="null against nan"),
    ],
)
def test_warning_of_one_statistic(place: str, target: Any, golden: Any, label: str) -> None:
    """Any of the four can warn alone; the message goes with the Warning and never without it."""
    verdict = of_one(target, golden, place)
    assert verdict.label == label
    assert (Reason("double_check") in verdict.reasons) is (label == "Warning")
    assert verdict.failed is (label == "Warning")


@pytest.mark.parametrize(
    ("target", "golden", "level"),
    [
        pytest.param(0.0003, 0.0001, Level.PASS, id="mean off by 200 % of nearly nothing"),
        pytest.param(0.05, 0.0, Level.PASS, id="exactly the share of the magnitude"),
        pytest.param(above(0.05), 0.0, Level.ERROR, id="just past the share"),
        pytest.param(-0.06, 0.0, Level.ERROR, id="below zero"),
        pytest.param(nan, 0.0001, Level.ERROR, id="nan has no scale"),
        pytest.param(inf, 0.0001, Level.ERROR, id="inf has no scale"),
    ],
)
def test_means_near_zero_are_no_suspects(target: float, golden: float, level: Level) -> None:
    """Warning in the table, as the guide has it, but no error unless it counts."""
    verdict = of_one(target, golden, "mean")
    assert (verdict.label, verdict.level) == ("Warning", level)
    assert any(reason.code == "evidence" for reason in verdict.reasons) is (level is Level.ERROR)


def test_the_scale_is_the_larger_end_of_the_golden() -> None:
    """A difference of 1 counts against a golden from -2 to 2, not against one from -100 to 2."""
    for least, level in ((-2.0, Level.ERROR), (-100.0, Level.PASS)):
        golden = tensor_value(Statistics(2.0, least, 0.1, 5.0))
        target = tensor_value(Statistics(2.0, least, 1.1, 5.0))
        assert statistics_result(target, golden).level is level


def test_without_a_finite_scale_every_difference_counts() -> None:
    golden = tensor_value(Statistics(None, nan, 0.0001, 5.0))
    target = tensor_value(Statistics(None, nan, 0.0003, 5.0))
    assert statistics_result(target, golden).level is Level.ERROR


@pytest.mark.parametrize(
    ("target", "golden", "label", "level"),
    [
        pytest.param(tensor_value(), None, "N/A", Level.WARNING, id="target alone"),
        pytest.param(None, tensor_value(), "N/A", Level.WARNING, id="golden alone"),
        pytest.param(tensor_value(), tensor_value(extent="[3]"), "N/A", Level.ERROR, id="other shape"),
        pytest.param(tensor_value(), tensor_value(), "", Level.PASS, id="alike"),
        pytest.param(tensor_value(), tensor_value(dtype="torch.bfloat16"), "", Level.PASS, id="other dtype"),
    ],
)
def test_rows_that_are_not_compared(target: Value | None, golden: Value | None, label: str, level: Level) -> None:
    verdict = statistics_result(target, golden)
    assert (verdict.label, verdict.level, verdict.failed) == (label, level, False)


@pytest.mark.parametrize(
    ("target", "golden", "label", "differ"),
    [
        pytest.param(1.05, 1.0, "", True, id="off by less than half"),
        pytest.param(2.0, 1.0, "Warning", True, id="off by more than half"),
        pytest.param(1.0, 1.0, "", False, id="alike"),
        pytest.param("sum", "mean", "Warning", True, id="texts"),
    ],
)
def test_scalars_in_a_table_of_statistics(target: Any, golden: Any, label: str, differ: bool) -> None:
    """A scalar that differs at all is an error, whatever the table's own rule says."""
    verdict = statistics_result(scalar_value(target), scalar_value(golden))
    assert verdict.label == label
    assert (verdict.level is Level.ERROR) is verdict.failed is differ
