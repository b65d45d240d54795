"""Calls as columns: their views, and what is computed of all of them at once."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.difference.explanations import find_largest_difference
from probe_diagnosis.difference.largest import compute_largest_differences
from probe_diagnosis.timeline.call_columns import CallColumns
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, ValueComparison, ValueState
from probe_diagnosis.timeline.value_table import build_call_table
from support.measuring import PROPERTY

from probe_core.model import Side

SIZES = st.sampled_from([0.0, 1e-8, 0.5, 1.0, 3.0, math.inf])
NOISES = st.sampled_from([0.0, 2.0**-17, 2.0**-5])
TEXTS = st.sampled_from(["", "1 against 2", "paired within calls that could not be aligned"])


@st.composite
def differences(draw: Any) -> ValueComparison:
    """A difference with any fields."""
    return ValueComparison(
        draw(st.sampled_from(["k.input.0", "other", "k"])), draw(st.sampled_from(list(Side))),
        draw(st.sampled_from(ValueState)), draw(SIZES), draw(SIZES), draw(NOISES), draw(st.sampled_from([0.0, 10.0])),
        draw(st.booleans()), draw(TEXTS), draw(st.sampled_from(Basis)), draw(st.booleans()),
        draw(st.booleans()), draw(st.sampled_from(["", "7"])), draw(st.sampled_from(["", "a against b"])),
        draw(st.booleans()), draw(st.sampled_from([0.0, 0.25, math.inf])), draw(st.booleans()),
        draw(st.booleans()),
    )  # fmt: skip


CALLS = st.lists(st.lists(differences(), max_size=4), max_size=6)


def columns_of(values: list[list[ValueComparison]]) -> CallColumns:
    """Return calls with these values."""
    return CallColumns.from_calls(ComparedCall(f"Torch.k.{n}.forward", tuple(own)) for n, own in enumerate(values))


@PROPERTY
@given(CALLS)
def test_views_return_what_was_set(values: list[list[ValueComparison]]) -> None:
    columns = columns_of(values)
    assert [list(call.values) for call in columns] == values
    restored = CallColumns.from_plain(json.loads(json.dumps(columns.plain())))
    assert (restored == columns and restored.table.lines.tobytes() != b"") or not any(values)


@PROPERTY
@given(st.lists(differences(), max_size=6), SIZES, NOISES)
def test_multiples_of_rounding_are_those_of_the_views(
    values: list[ValueComparison], scale: float, noise: float
) -> None:
    expected = [value.measure_multiple(max(value.scale, scale), noise) for value in values]
    expected = [0.0 if math.isnan(number) else number for number in expected]
    assert build_call_table("k", values).measure_multiples(scale, noise).tolist() == expected


@PROPERTY
@given(CALLS, NOISES)
def test_the_largest_differences_are_those_of_the_views(values: list[list[ValueComparison]], noise: float) -> None:
    columns = columns_of(values)
    largest = compute_largest_differences(columns, noise)
    bound = noise
    for number in columns.effect_order:
        call = columns[number]
        bound = max([bound, *(value.noise for value in call.values if not value.is_scalar)])
        assert largest.noise[number] == bound
        for wanted, found, lines in (
            (call.inputs(), largest.input_distances, largest.input_lines),
            (call.outputs(), largest.output_distances, largest.output_lines),
        ):
            times, worst = find_largest_difference(wanted, bound)
            assert found[number] == times
            line = lines[number]
            assert worst is None or call.values[line - columns.starts[number]] == worst
        outputs = [value for value in call.outputs() if not value.is_scalar]
        is_agreeing = any(value.is_float for value in outputs) and all(one.state == ValueState.SAME for one in outputs)
        assert largest.outputs_agree[number] == call.outputs_agree == is_agreeing


@pytest.mark.parametrize("count", [0, 1])
def test_no_values_are_no_difference(count: int) -> None:
    largest = compute_largest_differences(columns_of([[]] * count))
    assert largest.input_distances == largest.output_distances == largest.scaled_output_distances == [0.0] * count


@pytest.mark.parametrize("attribute", ["table", "starts", "within"])
def test_calls_that_were_being_added_are_dropped(attribute: str) -> None:
    """An interruption may come between any two statements."""
    columns = columns_of([[ValueComparison("k.input.0", Side.INPUT, ValueState.SAME)]] * 2)
    table = build_call_table("k", [ValueComparison("k.input.0", Side.INPUT, ValueState.SAME)] * 3)
    complete = [*columns]
    columns.table.extend(table, np.arange(3))
    if attribute != "table":
        columns.starts.append(columns.starts[-1] + 2)
    if attribute == "within":
        columns.modules.append(())
    columns.drop_incomplete()
    assert [*columns] == complete and len(columns.table) == 2
    assert compute_largest_differences(columns).output_distances == [0.0, 0.0]
