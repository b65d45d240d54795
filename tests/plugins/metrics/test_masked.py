"""Tensors with masked elements, held against float64 references of numpy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from probe_metrics.first_difference import FirstDifference
from probe_metrics.masked import is_masked, measure_unmasked
from support.cases import every
from support.measuring import tensor_value
from support.references.first_difference import evidence, inf, nan

from probe_core.model import Level, Mode, Statistics, Verdict
from probe_core.testing import pair_of, pair_of_values

VALUES = np.random.default_rng(3).normal(size=(8, 16))
AT = np.triu(np.ones((8, 16), bool), 1)
LEAST = {name: float(np.finfo(name).min) for name in ("float16", "float32", "float64")}
MASKS = [
    ("float32", -inf),
    ("float32", LEAST["float32"]),
    ("float32", -1e9),
    ("float32", -1e4),
    ("float16", -65504.0),
    ("float16", -1e4),
    ("float64", LEAST["float64"]),
]


def masked(constant: float, dtype: str, values: Any = VALUES, at: Any = AT) -> Any:
    return np.where(at, constant, values).astype(dtype)


def judge(target: Any, golden: Any) -> Verdict:
    return FirstDifference().judge(pair_of(target, golden), {})


def reference(target: Any, golden: Any, at: Any = AT) -> tuple[float, float]:
    """The root mean squares over all unmasked elements, by numpy in float64."""
    ours, theirs = (np.asarray(array, np.float64)[~at] for array in (target, golden))
    return float(np.sqrt(np.mean((ours - theirs) ** 2))), float(np.sqrt(np.mean(theirs**2)))


@pytest.mark.parametrize(("dtype", "constant"), MASKS)
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_distance_of_what_is_not_masked(dtype: str, constant: float, share: float) -> None:
    target, golden = masked(constant, dtype, VALUES * (1 + share)), masked(constant, dtype)
    found = measure_unmasked(pair_of(target, golden))
    assert found == pytest.approx(reference(target, golden), rel=1e-12, abs=1e-15)
    verdict = judge(target, golden)
    assert verdict.level is (Level.ERROR if share else Level.PASS)
    assert not share or evidence(verdict).startswith(("off by", "unmasked rms off by"))


@every("one", MASKS)
@every("other", MASKS)
def test_two_constants_at_the_same_places(one: tuple[str, float], other: tuple[str, float]) -> None:
    """-inf against the least number, or -1e9 against -1e4: what they leave is all that counts."""
    if one[0] != other[0] or one == other:
        return
    target, golden = masked(one[1], one[0]), masked(other[1], one[0])
    assert measure_unmasked(pair_of(target, golden)) == pytest.approx(reference(target, golden), abs=1e-15)
    verdict = judge(target, golden)
    assert verdict.level is Level.PASS and [reason.code for reason in verdict.reasons] == ["masked"]
    off = masked(one[1], one[0], VALUES * 1.3)
    assert judge(off, golden).level is Level.ERROR, "another constant excuses no other element"


@pytest.mark.parametrize(("dtype", "constant"), MASKS)
def test_masks_at_different_places(dtype: str, constant: float) -> None:
    elsewhere = AT.copy()
    elsewhere[3, 1] = True
    target, golden = masked(constant, dtype, at=elsewhere), masked(constant, dtype)
    assert measure_unmasked(pair_of(target, golden)) is None
    assert judge(target, golden).level is Level.ERROR


@pytest.mark.parametrize(("dtype", "constant"), MASKS)
def test_all_is_masked(dtype: str, constant: float) -> None:
    array = np.full((4, 4), constant, dtype)
    assert measure_unmasked(pair_of(array, array)) == (0.0, 0.0)
    assert judge(array, array).level is Level.PASS


@pytest.mark.parametrize("rare", [nan, inf])
def test_nan_and_inf_among_what_is_not_masked(rare: float) -> None:
    values = VALUES.copy()
    values[5, 2] = rare
    target, golden = masked(-1e9, "float32", values), masked(-1e9, "float32")
    assert measure_unmasked(pair_of(target, golden)) is None
    assert judge(target, golden).level is Level.ERROR
    assert judge(target, target).level is Level.PASS, "at the same places on both sides"


def test_a_tensor_without_a_mask() -> None:
    assert measure_unmasked(pair_of(VALUES, VALUES)) is None
    assert measure_unmasked(pair_of(VALUES * (1 + 1j), VALUES * (1 + 1j))) is None


@pytest.mark.parametrize(
    ("low", "high", "found"),
    [
        (-inf, 3.0, True),
        (-inf, inf, False),
        (-inf, nan, False),
        (LEAST["float32"], 5.0, True),
        (-1e9, 5.0, True),
        (-1e4, 5.0, True),
        (-65504.0, 5.0, True),
        (-1e9, 1e9, False),
        (-3.0, 2.0, False),
        (0.0, 0.0, False),
        (nan, nan, False),
    ],
)
def test_extrema_of_a_tensor_with_a_mask(low: float, high: float, found: bool) -> None:
    assert is_masked(low, high) is found


def recorded(array: Any, dtype: str = "torch.float32") -> Any:
    ends = float(array.max()), float(array.min())
    with np.errstate(over="ignore"):
        numbers = Statistics(*ends, float(array.mean()), float(np.linalg.norm(array)))
    return tensor_value(numbers, dtype=dtype)


def by_statistics(target: Any, golden: Any) -> Verdict:
    return FirstDifference().judge(pair_of_values(recorded(target), recorded(golden), Mode.STATISTICS), {})


@pytest.mark.parametrize("constant", [-1e9, -1e4, LEAST["float64"]])
def test_statistics_of_a_tensor_with_a_mask(constant: float) -> None:
    """The mean and the norm are the mask's, so the maximum alone is held against itself."""
    golden = masked(constant, "float64")
    assert by_statistics(golden, golden).level is Level.PASS
    verdict = by_statistics(masked(constant, "float64", VALUES * 1.3), golden)
    assert verdict.level is Level.ERROR and evidence(verdict).startswith("max off by 0.3 ")
    another = by_statistics(masked(2 * constant if math.isfinite(2 * constant) else -1e9, "float64"), golden)
    assert another.level is Level.PASS and [reason.code for reason in another.reasons] == ["masked"]


def test_statistics_with_infinity_against_the_least_number() -> None:
    golden = masked(-inf, "float64")
    assert by_statistics(masked(LEAST["float32"], "float64"), golden).level is Level.PASS
    assert by_statistics(masked(LEAST["float32"], "float64", VALUES * 1.3), golden).level is Level.ERROR


def test_another_constant_beside_values_that_agree() -> None:
    """-1e9 against the least number: both are finite, so that nothing stands at another place."""
    verdict = judge(masked(LEAST["float32"], "float32"), masked(-1e9, "float32"))
    assert verdict.level is Level.PASS
    assert [reason.code for reason in verdict.reasons] == ["masked"]


@pytest.mark.parametrize(("constant", "other"), [(-1e9, -1e9), (-1e9, LEAST["float32"])])
def test_statistics_of_masks_that_hide_another_number(constant: float, other: float) -> None:
    hidden = np.linspace(-1, 1, 64)
    runs = []
    for count, least in ((9, constant), (10, other)):
        values = hidden.copy()
        values[:count] = least
        runs.append(recorded(values)._replace(shape=(64,)))
    verdict = FirstDifference().judge(pair_of_values(*runs, Mode.STATISTICS), {})
    assert verdict.level is Level.ERROR
    assert verdict.reasons[0].detail == "about 9 masked elements against 10, by mean and minimum"
    same = FirstDifference().judge(pair_of_values(runs[0], runs[0], Mode.STATISTICS), {})
    assert same.level is Level.PASS
