"""The rule that finds the axes of samples and tokens by shapes, with values made by numpy as reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from probe_matching.rows.axes import AxisPart, Layout, find_layouts, is_batch_multiple
from probe_matching.rows.gather import gather
from probe_matching.rows.places import BatchSize, Pick, Places

S, T = AxisPart.SAMPLE, AxisPart.TOKEN
ARRANGEMENTS: dict[str, Any] = {
    "first": (lambda x: x, ((S,), (T,), (4,), (5,))),
    "second": (lambda x: x.swapaxes(0, 1), ((T,), (S,), (4,), (5,))),
    "heads": (lambda x: x.swapaxes(1, 2), ((S,), (4,), (T,), (5,))),
    "flat": (lambda x: x.reshape(-1, 4, 5), ((S, T), (4,), (5,))),
    "flat_second": (lambda x: x.swapaxes(0, 1).reshape(-1, 20), ((T, S), (20,))),
    "merged_heads": (lambda x: x.swapaxes(1, 2).reshape(-1, x.shape[1], 5), ((S, 4), (T,), (5,))),
    "outer_heads": (lambda x: np.moveaxis(x, 2, 0).reshape(-1, x.shape[1], 5), ((4, S), (T,), (5,))),
    "last": (lambda x: np.moveaxis(x, 0, -1), ((T,), (4,), (5,), (S,))),
}
"""Arrangements of an array of samples, tokens, 4 heads and 5 features by programs, with their layouts."""


def numbers(samples: int, tokens: int) -> np.ndarray[Any, Any]:
    """Return an array of which each element tells its sample and token."""
    sample, token, rest = np.ogrid[:samples, :tokens, :20]
    return (10_000.0 * sample + 100 * token + rest).reshape(samples, tokens, 4, 5)


def places(batch: BatchSize, rows: Sequence[int], tokens: Sequence[int] | None = None) -> Places:
    """Return the same tokens of some rows."""
    own = None if tokens is None else np.array(tokens)
    return Places(batch, tuple(Pick(row, own) for row in rows))


@pytest.mark.parametrize("name", ARRANGEMENTS)
@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(2, 7), st.integers(2, 7))
def test_readings_hold_the_true_layout_of_each_arrangement(
    name: str, first: int, second: int, tokens: int, others: int
) -> None:
    assume(first > 1 or second > 1)
    arrange, axes = ARRANGEMENTS[name]
    batches = BatchSize(first, tokens), BatchSize(second, others)
    shapes = [arrange(numbers(batch.samples, batch.tokens)).shape for batch in batches]
    assert Layout(axes) in find_layouts(*shapes, batches)


@pytest.mark.parametrize("name", ARRANGEMENTS)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_gather_returns_the_same_tokens_from_every_arrangement(name: str, data: st.DataObject) -> None:
    samples, tokens = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 6))
    rows = data.draw(st.lists(st.integers(0, samples - 1), min_size=1, unique=True))
    chosen = data.draw(st.lists(st.integers(0, tokens - 1), min_size=1, unique=True))
    arrange, axes = ARRANGEMENTS[name]
    array = numbers(samples, tokens)
    found = gather(arrange(array), Layout(axes), places(BatchSize(samples, tokens), rows, chosen))
    expected = [array[row, token] for row in rows for token in chosen]
    assert np.array_equal(found.ravel(), np.ravel(expected))


@pytest.mark.parametrize("name", [name for name in ARRANGEMENTS if name not in ("flat_second", "outer_heads")])
@settings(deadline=None, max_examples=40)
@given(st.integers(2, 5), st.integers(6, 11), st.integers(3, 7))
def test_readings_are_unique_where_only_the_number_of_samples_differs(
    name: str, first: int, second: int, tokens: int
) -> None:
    arrange, _ = ARRANGEMENTS[name]
    batches = BatchSize(first), BatchSize(second)
    shapes = [arrange(numbers(batch.samples, tokens)).shape for batch in batches]
    found = find_layouts(*shapes, batches)
    assert found and all(layout.has_samples for layout in found)
    rows = [0, first - 1]
    arrays = [arrange(numbers(batch.samples, tokens)) for batch in batches]
    chosen = [gather(array, found[0], places(batch, rows)) for array, batch in zip(arrays, batches)]
    assert np.array_equal(*chosen)


def test_attention_scores_have_two_axes_of_tokens() -> None:
    batches = BatchSize(3, 7), BatchSize(1, 10)
    (layout,) = find_layouts((3, 4, 7, 7), (1, 4, 10, 10), batches)
    assert layout.axes == ((S,), (4,), (T,), (T,))
    scores = np.arange(3 * 4 * 49).reshape(3, 4, 7, 7)
    found = gather(scores, layout, places(batches[0], [2], [1, 3]))
    assert np.array_equal(found.ravel(), [scores[2, head, q, k] for q in (1, 3) for k in (1, 3) for head in range(4)])


def test_the_axis_of_one_sample_may_be_missing() -> None:
    (layout,) = find_layouts((10, 6), (3, 7, 6), (BatchSize(1, 10), BatchSize(3, 7)))
    assert layout.axes == ((S,), (T,), (6,))
    array = np.arange(60).reshape(10, 6)
    assert np.array_equal(gather(array, layout, places(BatchSize(1, 10), [0], [4, 5])), array[4:6])


@pytest.mark.parametrize(("target", "golden"), [((1, 5), (8, 6)), ((2, 3, 4), (3, 4)), ((0, 3), (0, 3)), ((3,), (7,))])
def test_shapes_without_a_common_layout_have_no_reading(target: Any, golden: Any) -> None:
    assert find_layouts(target, golden, (BatchSize(1), BatchSize(8))) == []


def test_values_of_the_same_shape_without_samples_are_read_as_a_whole() -> None:
    (layout,) = find_layouts((96, 32), (96, 32), (BatchSize(1), BatchSize(8)))
    assert layout.axes == ((96,), (32,)) and not layout.has_samples


def test_readings_prefer_the_first_axis_with_exactly_the_number_of_samples() -> None:
    found = find_layouts((8, 8, 64), (8, 8, 64), (BatchSize(8), BatchSize(8)))
    assert found[0].axes == ((S,), (8,), (64,)) and len(found) > 2 and not found[-1].has_samples


def test_numbers_that_follow_from_the_batches_are_sizes() -> None:
    batches = BatchSize(2, 5), BatchSize(3, 7)
    assert (
        is_batch_multiple(2, 3, batches) and is_batch_multiple(10, 14, batches) and is_batch_multiple(40, 84, batches)
    )
    assert not is_batch_multiple(2, 4, batches) and not is_batch_multiple(0, 0, batches)
