"""The comparison of all outputs of a call: types, lengths and numbers."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pytest
from probe_watch.free_benchmark.outcome import OutputComparison
from probe_watch.free_benchmark.outputs import NotComparable, compare_outputs
from probe_watch.free_benchmark.thresholds import load_thresholds

ONE = np.ones(2)


def compare(original: Any, changed: Any) -> list[bool]:
    """Return for each compared output whether it is consistent."""
    outcomes = compare_outputs(original, changed, compare_arrays, load_thresholds(), np.ndarray)
    return [outcome.consistent for outcome in outcomes]


def compare_arrays(original: Any, changed: Any) -> OutputComparison:
    return OutputComparison(bool((original == changed).all()), "float64")


@pytest.mark.parametrize(
    "changed", [ONE, None, 1.0, "text", [ONE], [ONE, ONE, ONE], [ONE, 1.0], [ONE, [ONE]], [ONE, None]], ids=repr
)
def test_outputs_of_other_types_or_lengths_are_not_comparable(changed: Any) -> None:
    with pytest.raises(NotComparable):
        compare([ONE, ONE], changed)
    with pytest.raises(NotComparable):
        compare(changed, [ONE, ONE])


def test_integers_and_floats_are_not_comparable() -> None:
    with pytest.raises(NotComparable):
        compare(1, 1.0)
    with pytest.raises(NotComparable):
        compare(1.0, 1)


def test_lists_and_tuples_are_compared_item_by_item() -> None:
    assert compare((ONE, 1, "a", 0.5, None), [ONE, 2, "a", 0.5, None]) == [True, False, True, True]


def test_nan_is_consistent_with_nan() -> None:
    assert compare(float("nan"), float("nan")) == [True]


def test_indices_of_equal_values_are_not_compared() -> None:
    result = namedtuple("result", ("values", "indices"))
    assert compare(result(ONE, ONE), result(ONE, 2 * ONE)) == [True]


def test_other_objects_count_as_consistent() -> None:
    assert compare(None, None) == []
