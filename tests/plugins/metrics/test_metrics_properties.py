"""Properties of the metrics on any arrays: identity, symmetry, scale, bounds, alignment."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_metrics.cosine import Cosine
from probe_metrics.equal import Equal
from probe_metrics.error_ratio import ErrorRatio
from probe_metrics.max_error import MaxError
from pytest import approx
from support.measuring import PROPERTY, look, measure
from support.references.metric_reference import ANY, METRICS, SAME, SUMMED, two_arrays

Array = np.ndarray[Any, Any]


@PROPERTY
@given(two_arrays())
def test_identity(arrays: tuple[Array, Array]) -> None:
    """Whatever the data, they equal themselves, and the answers say exactly that."""
    array = arrays[0]
    assert look(Cosine(), array, array.copy()) == [approx(1, abs=1e-14)]
    for name, answer in {**SAME, "equal": [True]}.items():
        assert look(METRICS[name], array, array.copy()) == answer, name


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_identity_with_nan_and_inf(arrays: tuple[Array, Array]) -> None:
    array = arrays[0]
    means = {} if np.isfinite(array).any() else {"rmse": ["nan"], "mape": ["nan"], "ulp": ["nan"] * 3}
    for name, answer in {**SAME, "equal": [True], **means}.items():
        assert look(METRICS[name], array, array.copy()) == answer, name


@PROPERTY
@given(two_arrays(ANY, np.float32))
@pytest.mark.parametrize("name", ["cosine", "euclidean", "rmse", "ulp", "equal"])
def test_symmetry(name: str, arrays: tuple[Array, Array]) -> None:
    """Swapped sides matter only to errors held against the golden's size."""
    mirror = {"target_zero": "golden_zero", "golden_zero": "target_zero"}
    there = look(METRICS[name], *arrays)
    back = [mirror.get(item, item) for item in look(METRICS[name], *arrays[::-1])]
    assert back == [item if isinstance(item, str) else approx(item, rel=1e-14) for item in there]
    if name == "euclidean":
        forth, other = (look(MaxError(), *order)[0] for order in (arrays, arrays[::-1]))
        assert forth == other


@PROPERTY
@given(two_arrays(st.floats(-1e30, 1e30).map(lambda x: 0.0 if abs(x) < 1e-30 else x)), st.integers(-200, 200))
def test_cosine_does_not_depend_on_scale(arrays: tuple[Array, Array], power: int) -> None:
    """A power of two scales without rounding; the sign turns the angle around."""
    target, golden = arrays
    (cosine,) = look(Cosine(), target, golden)
    scaled = target * 2.0**power
    assert look(Cosine(), scaled, golden) == [approx(cosine, abs=1e-13)]
    turned = cosine if isinstance(cosine, str) or not (target.any() or golden.any()) else -cosine
    assert look(Cosine(), -scaled, golden) == [approx(turned, abs=1e-13)]


@PROPERTY
@given(two_arrays())
def test_bounds(arrays: tuple[Array, Array]) -> None:
    size = arrays[0].size
    (euclidean,), (rmse,), (mape,) = (look(METRICS[name], *arrays) for name in ("euclidean", "rmse", "mape"))
    absolute, relative = look(MaxError(), *arrays)
    one, five = look(ErrorRatio(), *arrays)
    (cosine,) = look(Cosine(), *arrays)
    little = 1 + 1e-12
    assert 0 <= rmse <= absolute * little + 5e-324
    assert absolute <= euclidean * little + 5e-324
    assert euclidean <= absolute * math.sqrt(size) * little + 5e-324
    assert 0 <= one <= five <= 1
    assert 0 <= mape <= relative * little
    assert relative <= mape * size * little
    assert isinstance(cosine, str) or -1 <= cosine <= 1
    if look(Equal(), *arrays) == [True]:
        assert absolute == relative == 0


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_nothing_but_numbers_and_known_reasons(arrays: tuple[Array, Array]) -> None:
    """A nan is never a measurement: it would pass every threshold."""
    for name, metric in METRICS.items():
        for item in measure(metric, *arrays):
            assert (item.value is None) != (item.reason is None), name
            assert item.number is None or not math.isnan(item.number), name


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_alignment_is_that_of_the_three_masks(arrays: tuple[Array, Array]) -> None:
    """The masks of +inf, of -inf and of nan each agree."""
    masks = [(np.isnan(one), np.isposinf(one), np.isneginf(one)) for one in arrays]
    agree = all(np.array_equal(ours, theirs) for ours, theirs in zip(*masks))
    for name in (*SUMMED, "ulp"):
        assert ("positions" in look(METRICS[name], *arrays)) is not agree, name
