"""Values in columns: every value comes back as it was, and parts append to the same columns."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_recording.reading.columns import RunColumnsBuilder
from support.sampling import examples

from probe_core.model import Kind, Record, Side, Slot, Statistics, Transfer, Value
from probe_core.model.columns import create_columns

NUMBERS = st.one_of(
    st.floats(),
    st.integers(-5, 5),
    st.sampled_from([2**53, 2**53 + 1, -(2**53) - 1, 10**400, -(10**400), 5e-324, -0.0]),
    st.booleans(),
    st.none(),
    st.text(max_size=3),
)
TEXTS = st.text("ab.é0", max_size=4)
VALUES = st.builds(
    Value,
    st.sampled_from(Kind),
    st.sampled_from(["torch.float32", "Int64", ""]),
    st.sampled_from(["[2, 3]", "[]", "None"]),
    st.none() | st.tuples(st.integers(0, 3)),
    st.builds(Statistics, NUMBERS, NUMBERS, NUMBERS, NUMBERS),
    st.none() | TEXTS,
    st.none() | st.booleans(),
    st.none() | TEXTS,
    st.none() | st.just(Transfer("send", 3)),
)
SLOTS = st.builds(Slot, TEXTS, st.sampled_from(Side), TEXTS, VALUES)
RECORDS = st.lists(st.tuples(TEXTS, st.lists(SLOTS, max_size=4).map(tuple)), max_size=5)


def exact(item: Any) -> Any:
    """The item with the types of its parts, so that 1, 1.0 and True differ, and nan equals nan."""
    if isinstance(item, tuple):
        return type(item).__name__, tuple(map(exact, item))
    return type(item).__name__, repr(item)


@given(RECORDS)
@settings(max_examples=examples(200), deadline=None)
def test_columns_return_every_value_as_it_was(described: list[tuple[str, tuple[Slot, ...]]]) -> None:
    records = [Record(index, key, slots) for index, (key, slots) in enumerate(described)]
    columns = create_columns(records)
    assert len(columns) == sum(len(record.slots) for record in records) == columns.starts[-1]
    for record in records:
        found = columns.record(record.index)
        assert found.key == record.key and exact(found.slots) == exact(record.slots)


@given(RECORDS, RECORDS)
@settings(max_examples=examples(100), deadline=None)
def test_columns_extend_returns_the_columns_of_all_records(first: Any, second: Any) -> None:
    parts = [[(key, [_plain(slot) for slot in slots]) for key, slots in part] for part in (first, second)]
    together, apart = RunColumnsBuilder(), RunColumnsBuilder()
    for part in parts:
        single = RunColumnsBuilder()
        for builder in (together, single):
            for key, slots in part:
                builder.begin(key)
                for slot in slots:
                    builder.add(slot.side, slot.path, slot.value)
                builder.end()
        apart.extend(single.finish())
    assert together.has_checksum == apart.has_checksum
    wanted, found = together.finish(), apart.finish()
    assert [*wanted.starts] == [*found.starts] and [*wanted.signatures] == [*found.signatures]
    for index in range(len(wanted.keys)):
        assert exact(wanted.record(index).slots) == exact(found.record(index).slots)


def _plain(slot: Slot) -> Slot:
    """A slot as the compiled reader gives it: without transfers, data and integers that float64 does not hold."""
    fits = [not (type(item) is int and abs(item) > 2**53) for item in slot.value.statistics]
    statistics = [item if fit else None for item, fit in zip(slot.value.statistics, fits)]
    return slot._replace(value=slot.value._replace(statistics=Statistics(*statistics), data_name=None, p2p=None))


@pytest.mark.parametrize("value", [np.float32(0.5), np.int64(3), np.bool_(True)])
def test_columns_convert_statistics_of_numpy(value: Any) -> None:
    leaf = Value(Kind.TENSOR, "float32", "[]", (), Statistics(value))
    slot = Slot("a", Side.INPUT, "0", leaf)
    (found,) = create_columns([Record(0, "a", (slot,))]).record(0).slots
    assert exact(found.value.statistics.max) == exact(value.item())


def test_numbers_beyond_float64_are_infinite_in_the_column_and_exact_in_views() -> None:
    leaf = Value(Kind.TENSOR, "int64", "[]", (), Statistics(10**400, -(10**400), 2**60 + 1))
    columns = create_columns([Record(0, "a", (Slot("a", Side.INPUT, "0", leaf),))])
    assert columns.numbers[0, :3].tolist() == [math.inf, -math.inf, float(2**60)]
    assert columns.record(0).slots[0].value.statistics[:3] == (10**400, -(10**400), 2**60 + 1)
