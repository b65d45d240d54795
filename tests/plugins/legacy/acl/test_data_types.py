"""Data types of ACL dumps: each code of each type has the value that its definition gives it."""

from __future__ import annotations

import math
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from probe_legacy.acl.data_types import load_data_types
from support.cases import every

PLAIN = {
    0: "i1", 1: "f4", 2: "f2", 3: "i1", 4: "u1", 5: "i2", 6: "u2", 7: "i4", 8: "i8", 9: "u4", 10: "u8", 12: "f8",
    14: "i1", 15: "u1", 16: "c8", 17: "c16", 18: "i1", 19: "i2", 20: "i4", 21: "u1", 22: "u2", 23: "i8",
}  # fmt: skip
SHORT_FLOATS = {
    34: ml_dtypes.float8_e5m2, 35: ml_dtypes.float8_e4m3fn, 36: ml_dtypes.float8_e8m0fnu,
    37: ml_dtypes.float6_e3m2fn, 38: ml_dtypes.float6_e2m3fn, 39: ml_dtypes.float4_e2m1fn,
}  # fmt: skip


def values(number: int, data: bytes, count: int | None = None) -> Any:
    return load_data_types()[number].decode_values(data, count)


def test_all_types_are_known() -> None:
    assert set(load_data_types()) == set(range(41))


@every("number", PLAIN)
def test_types_that_numpy_has(number: int) -> None:
    expected = np.frombuffer(bytes(range(1, 65)), f"<{PLAIN[number]}")
    found = values(number, expected.tobytes())
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def test_truths() -> None:
    found = values(11, b"\x00\x01\x02")
    assert found.dtype == bool and found.tolist() == [False, True, True]


def test_bfloat16_is_exact() -> None:
    data = np.arange(1 << 16, dtype="<u2")
    found = values(27, data.tobytes())
    expected = data.view(ml_dtypes.bfloat16).astype(np.float32)
    assert found.dtype == np.float32 and np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("number", SHORT_FLOATS)
def test_short_floats_have_the_values_of_their_definition(number: int) -> None:
    dtype = SHORT_FLOATS[number]
    codes = np.arange(1 << load_data_types()[number].bits, dtype=np.uint8)
    found = values(number, codes.tobytes(), len(codes))
    expected = codes.view(dtype).astype(np.float32)
    assert np.array_equal(found, expected, equal_nan=True)
    assert np.array_equal(np.signbit(found), np.signbit(expected)) or number == 36


def test_the_float_with_one_exponent_bit() -> None:
    found = values(40, bytes(range(16)), 16)
    assert found.tolist() == [*(n / 4 for n in range(8)), *(-n / 4 for n in range(8))]


def test_hifloat8() -> None:
    known = {
        0x00: 0.0, 0x01: 2.0**-22, 0x07: 2.0**-16, 0x08: 1.0, 0x0F: 1.875, 0x10: 2.0, 0x18: 0.5, 0x20: 4.0, 0x28: 8.0,
        0x30: 0.25, 0x6E: 2.0**15, 0x7E: 2.0**-15, 0x6F: math.inf, 0xEF: -math.inf, 0x88: -1.0,
    }  # fmt: skip
    found = values(33, bytes(range(256)))
    assert {code: found[code] for code in known} == known
    assert math.isnan(found[0x80]) and np.isnan(found).sum() == 1
    assert len(set(found[~np.isnan(found)].tolist())) == 255, "no two codes have one value"
    assert sorted(found[1:0x80].tolist()) == sorted((-found[0x81:]).tolist())


def test_half_precision_complex_numbers() -> None:
    found = values(32, struct.pack("<4e", 1.5, -2, 0.25, 8))
    assert found.dtype == np.complex64 and found.tolist() == [1.5 - 2j, 0.25 + 8j]


@pytest.mark.parametrize(
    ("number", "data", "expected"),
    [
        (28, b"\x71\x8f", [1, 7, -1, -8]),
        (29, b"\x05", [1, 0, 1, 0, 0, 0, 0, 0]),
        (30, b"\x1e", [-2, -1, 1, 0]),
        (31, b"\x1e", [2, 3, 1, 0]),
        (39, b"\xf2", [1.0, -6.0]),
        (38, bytes([0b11000001, 0b00010000, 0b00000100]), [0.125, 0.375, 0.125, 0.125]),
    ],
)
def test_packed_values_begin_with_the_lowest_bits(number: int, data: bytes, expected: list[float]) -> None:
    kind = load_data_types()[number]
    assert kind.can_hold(len(expected), len(data))
    assert values(number, data, len(expected)).tolist() == expected
    assert values(number, data).tolist() == expected
    if kind.bits < 6:  # three values of six bits are as long as three bytes
        assert values(number, data, len(expected) - 1).tolist() == expected[:-1]


def test_short_values_may_take_a_byte_each() -> None:
    assert load_data_types()[28].can_hold(3, 3) and values(28, b"\xff\x08\x07", 3).tolist() == [-1, -8, 7]
    assert not load_data_types()[28].can_hold(5, 4) and not load_data_types()[1].can_hold(2, 7)


def test_bytes_without_a_type_are_kept() -> None:
    for number in (13, 24, 25, 26):
        assert values(number, b"abc").tolist() == [97, 98, 99]
