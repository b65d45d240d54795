"""Slices of tensors against numpy's indexing, and the rows of a request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_recording.fields import Fields
from probe_recording.settings.slices import (
    DimensionSlice,
    check_scheduled_tokens,
    find_request_slice,
    read_slices,
    select_index,
)
from support.measuring import PROPERTY

from probe_core.errors import UserError

BOUNDS = st.integers(-7, 7)
SLICES = st.lists(
    st.builds(DimensionSlice, st.integers(0, 4), BOUNDS, st.none() | BOUNDS, st.none() | st.integers(0, 4)), max_size=4
)


def slice_with_numpy(array: Any, slices: list[DimensionSlice]) -> Any:
    """Return the selected part, found by indices of each dimension instead of an index of all of them."""
    for dim in range(array.ndim):
        fitting = [item for item in slices if item.dim == dim and item.size in (None, array.shape[dim])]
        if fitting:
            array = np.take(array, np.arange(array.shape[dim])[fitting[-1].begin : fitting[-1].end], axis=dim)
    return array


@PROPERTY
@given(st.lists(st.integers(0, 4), max_size=4), SLICES)
def test_select_index_agrees_with_indices_of_each_dimension(shape: list[int], slices: list[DimensionSlice]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    index = select_index(array.shape, slices)
    np.testing.assert_array_equal(array if index is None else array[index], slice_with_numpy(array, slices))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()),
        ([], ()),
        ([{}], ()),
        ([{"end": 3}], (DimensionSlice(0, 0, 3),)),
        ([{"dim": 1, "begin": -4}, {"size": 8, "end": None}], (DimensionSlice(1, -4), DimensionSlice(size=8))),
    ],
)
def test_read_slices_uses_defaults_of_missing_fields(value: Any, expected: tuple[DimensionSlice, ...]) -> None:
    assert read_slices(Fields({"slice": value}, "The configuration")) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"dim": 0}, "must be a list of objects"),
        (["0:3"], "must be a list of objects"),
        ([{"dim": 0.5}], "dim 0.5, which is not an integer"),
        ([{"begin": True}], "begin True, which is not an integer"),
        ([{"begin": None}], "begin None, which is not an integer"),
        ([{"dim": -1}], "negative dim -1"),
        ([{"size": -1}], "negative size -1"),
        ([{"stop": 3}], 'unknown field "stop"'),
    ],
)
def test_read_slices_refuses_wrong_values(value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_slices(Fields({"slice": value}, "The configuration"))


def test_find_request_slice_counts_the_rows_of_earlier_requests() -> None:
    tokens = {"a": 5, "b": 1, "c": 3}
    assert find_request_slice("a", tokens) == DimensionSlice(0, 0, 5, 9)
    assert find_request_slice("c", tokens) == DimensionSlice(0, 6, 9, 9)
    assert find_request_slice("d", tokens) is None


@pytest.mark.parametrize("value", [["a"], {"a": 0}, {"a": 1.0}, {"a": True}, {1: 1}, "a"])
def test_check_scheduled_tokens_refuses_wrong_values(value: Any) -> None:
    with pytest.raises(UserError, match="scheduled_tokens must be a dict"):
        check_scheduled_tokens(value)
