"""The text of tensors in golden files."""

from __future__ import annotations

import math

import pytest
from pytest_probe.value_text import (
    SeenValues,
    TensorValue,
    ValueTextError,
    format_leaf,
    format_value,
    parse_leaf,
    parse_value,
    round_value,
)
from support.cases import every

LEAF = {
    "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 3], "Max": 1.5, "Min": -0.25, "Mean": 0.1, "Norm": 2.0,
    "requires_grad": True, "md5": "1a2b3c4d5e6f7081",
}  # fmt: skip


def test_leaf_becomes_a_text_and_a_leaf_again_without_its_checksum() -> None:
    value = parse_leaf(LEAF)
    assert value is not None and format_value(value) == "float32[2,3]* 1.5 -0.25 0.1 2.0 #1a2b3c4d"
    assert format_leaf(parse_value(format_value(value))) == {key: LEAF[key] for key in LEAF if key != "md5"}


@every(
    "value",
    [
        TensorValue("int64", (), False, (3, -4, 0.5, 5.0), "00000001"),
        TensorValue("bool", (1,), False, (True, False, None, None), "00000002"),
        TensorValue("float32", (0,), False, (None, None, None, None), None),
        TensorValue("float16", (2,), True, (math.inf, -math.inf, 1e-30, 1e30), "00000003"),
        TensorValue("float64", (2,), True, (1 / 3, -1 / 3, 2 / 3, 1.0), "00000004"),
    ],
)
def test_text_is_read_as_the_same_value(value: TensorValue) -> None:
    assert parse_value(format_value(value)) == value and round_value(value) == value


def test_nan_is_kept() -> None:
    value = parse_value(format_value(TensorValue("float32", (2,), False, (math.nan,) * 4, "00000001")))
    assert value.statistics is not None and all(math.isnan(number or 0) for number in value.statistics)


@every("dtype, number", [("float32", "0.33333333"), ("bfloat16", "0.333333"), ("float16", "0.333333")])
def test_digits_follow_from_the_dtype(dtype: str, number: str) -> None:
    assert format_value(TensorValue(dtype, (), False, (1 / 3,) * 4, None)) == f"{dtype}[]{f' {number}' * 4}"


@every("leaf", [{"type": "int", "value": 1}, {**LEAF, "device_mesh": None}, {"type": "torch.Tensor"}])
def test_other_leaves_are_no_values(leaf: dict[str, object]) -> None:
    assert parse_leaf(leaf) is None


@every("text", ["", "float32", "float32[2] 1.0 2.0", "float32[2] 1 2 3 x", "[2] 1 2 3 4", "float32[2] 1 2 3 4 5"])
def test_damaged_text_is_refused(text: str) -> None:
    with pytest.raises(ValueTextError):
        parse_value(text)


def test_repeated_values_are_references() -> None:
    value = TensorValue("float32", (2, 3), False, (1.0, 0.0, 0.5, 2.0), "00000001")
    flat = TensorValue("float32", (6,), False, (1.0, 0.0, 0.5, 2.0), "00000001")
    unsummed = TensorValue("float32", (2, 3), False, (1.0, 0.0, 0.5, 2.0), None)
    seen = SeenValues()
    texts = [format_value(seen.shorten(one)) for one in (value, value, flat, unsummed)]
    assert texts == ["float32[2,3] 1.0 0.0 0.5 2.0 #00000001", "#00000001", "float32[6] #00000001", "#00000001"]
    reading = SeenValues()
    assert [reading.expand(parse_value(text)) for text in texts] == [value, value, flat, value]


def test_equal_checksums_of_other_statistics_are_no_references() -> None:
    seen = SeenValues()
    seen.shorten(TensorValue("float32", (2,), False, (1.0, 0.0, 0.5, 1.0), "00000001"))
    other = TensorValue("float32", (2,), False, (9.0, 0.0, 0.5, 9.0), "00000001")
    assert seen.shorten(other) == other


def test_reference_to_nothing_is_refused() -> None:
    with pytest.raises(ValueTextError):
        SeenValues().expand(parse_value("#00000001"))
