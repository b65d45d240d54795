"""Metrics of recorded values without data: differences of statistics, and checksums."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_metrics.checksum import Checksum
from probe_metrics.statistics import StatisticsDifference
from pytest import approx
from support.measuring import PROPERTY, tensor_value

from probe_core.model import Statistics
from probe_core.testing import pair_of_values

nan, inf = math.nan, math.inf


def look_at_statistic(target: Any, golden: Any) -> tuple[Any, Any]:
    """Difference and relative error of one statistic, the minimum, among others that agree."""
    pair = pair_of_values(*(tensor_value(Statistics(1.0, one, 2.0, 3.0)) for one in (target, golden)))
    found = [item.reason.code if item.reason else item.value for item in StatisticsDifference().measure(pair)]
    assert [found[place] for place in (0, 2, 3, 4, 6, 7)] == [0] * 6
    return found[1], found[5]


@pytest.mark.parametrize(
    ("target", "golden", "difference", "relative"),
    [
        pytest.param(1.5, 1.0, 0.5, 0.5, id="plain"),
        pytest.param(1.0, 4.0, -3.0, 0.75, id="the sign of the difference is kept, that of the error is not"),
        pytest.param(-1.0, -4.0, 3.0, 0.75, id="a golden below zero"),
        pytest.param(3, 4, -1, 0.25, id="integers"),
        pytest.param(2.0, 2.0, 0, 0, id="equal"),
        pytest.param(0.0, 0.0, 0, "zero_golden", id="both zero"),
        pytest.param(0.5, 0.0, 0.5, "zero_golden", id="golden zero"),
        pytest.param(0.0, 2.0, -2, 1, id="target zero"),
        pytest.param(nan, 1.0, "nan", "nan", id="target nan"),
        pytest.param(1.0, nan, "nan", "nan", id="golden nan"),
        pytest.param(nan, nan, "nan", "nan", id="both nan"),
        pytest.param(inf, inf, "nan", "nan", id="both inf"),
        pytest.param(inf, -inf, inf, "nan", id="inf of different signs"),
        pytest.param(inf, 1.0, inf, inf, id="target inf"),
        pytest.param(-inf, 1.0, -inf, inf, id="target -inf"),
        pytest.param(1.0, inf, -inf, "nan", id="golden inf"),
        pytest.param(inf, 0.0, inf, "zero_golden", id="inf against zero"),
        pytest.param(None, 1.0, "no_number", "no_number", id="null"),
        pytest.param(None, None, "no_number", "no_number", id="both null"),
        pytest.param("a", "b", "no_number", "no_number", id="texts"),
        pytest.param("1.0", 1.0, "no_number", "no_number", id="a number as text"),
        pytest.param(True, False, "no_number", "no_number", id="truth values"),
        pytest.param(True, 1.0, "no_number", "no_number", id="a truth value against a number"),
        pytest.param(10**400, 1.0, inf, inf, id="an integer beyond float64"),
        pytest.param(1e-320, 5e-320, -4e-320, approx(0.8, rel=1e-3), id="denormals"),
    ],
)
def test_statistics(target: Any, golden: Any, difference: Any, relative: Any) -> None:
    """docs/tables.md#statistics-result, read for one statistic among four."""
    expected = difference if isinstance(difference, str) else approx(difference)
    assert look_at_statistic(target, golden) == (expected, relative)


def test_statistics_are_in_the_order_of_the_columns() -> None:
    pair = pair_of_values(tensor_value(Statistics(2.0, 3.0, 4.0, 5.0)), tensor_value(Statistics(1.0, 1.0, 1.0, 1.0)))
    assert [item.value for item in StatisticsDifference().measure(pair)] == [1, 2, 3, 4, 1, 2, 3, 4]


@PROPERTY
@given(st.floats(-1e150, 1e150), st.floats(-1e150, 1e150))
def test_statistics_of_any_numbers(target: float, golden: float) -> None:
    difference, relative = look_at_statistic(target, golden)
    assert difference == target - golden
    assert relative == ("zero_golden" if golden == 0 else approx(abs((target - golden) / golden)))


@pytest.mark.parametrize(
    ("target", "golden", "agree"),
    [("0a1b2c3d", "0a1b2c3d", True), ("0a1b2c3d", "0a1b2c3e", False), ("0A1B2C3D", "0a1b2c3d", False),
     (None, None, True), (None, "0a1b2c3d", False), ("0a1b2c3d", None, False), ("", None, False)],
)  # fmt: skip
def test_checksum(target: str | None, golden: str | None, agree: bool) -> None:
    """Both absent count as equal."""
    pair = pair_of_values(tensor_value(checksum=target), tensor_value(checksum=golden))
    (found,) = Checksum().measure(pair)
    assert found.value is agree
