"""Data types of ACL dumps, and their bytes as values.

numpy has no bfloat16, no floats of 8 bits or less and no integers of 4 bits or less: these become float32,
int8 and uint8, which hold each of their values exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from probe_core.files.packaged import load_yaml

Array = np.ndarray[Any, Any]


class DataType(NamedTuple):
    """A data type.

    Attributes:
        name: Its name.
        numpy: The numpy dtype that its bytes are read as.
        code: The rule that makes values of them; empty if they are values.
        bits: The number of bits of a value.
    """

    name: str
    numpy: str
    code: str
    bits: int

    def count_bytes(self, count: int) -> int:
        """Return the number of bytes of ``count`` values, packed."""
        return -(-count * self.bits // 8)

    def can_hold(self, count: int, size: int) -> bool:
        """Return True if ``size`` bytes hold ``count`` values, packed or, if they are short, one a byte."""
        return size == self.count_bytes(count) or (self.bits < 8 and size == count)

    def decode_values(self, data: memoryview | bytes, count: int | None = None) -> Array:
        """Return bytes as values, in one dimension.

        Args:
            data: The bytes.
            count: The number of values, which fits; None for as many as there are whole values.
        """
        if self.bits < 8:
            codes = np.frombuffer(data, np.uint8)
            wanted = len(codes) * 8 // self.bits if count is None else count
            if wanted != len(codes) or count is None:
                codes = _unpack_codes(codes, self.bits, wanted)
            return _decode_codes(codes & ((1 << self.bits) - 1), self.code, self.bits)
        width = self.bits // 8
        whole = len(data) // width * width
        return _decode_codes(np.frombuffer(data[:whole], self.numpy), self.code, self.bits)


RAW_BYTES = DataType("raw bytes", "|u1", "", 8)
"""The type that bytes of an unknown type are kept in."""


@lru_cache(maxsize=1)
def load_data_types() -> Mapping[int, DataType]:
    """Return the data types by their numbers."""
    table = load_yaml(__package__, "data_types.yaml")
    return {
        number: DataType(
            row["name"],
            row["numpy"],
            row.get("code", ""),
            row.get("bits", 8 * np.dtype(row["numpy"]).itemsize),
        )
        for number, row in table.items()
    }


def _unpack_codes(codes: Array, bits: int, count: int) -> Array:
    """Return codes that are packed without gaps, those of the lowest bits first."""
    flat = np.unpackbits(codes, bitorder="little")[: count * bits]
    weights = (1 << np.arange(bits)).astype(np.uint8)
    unpacked: Array = (flat.reshape(count, bits) * weights).sum(axis=1, dtype=np.uint8)
    return unpacked


def _decode_codes(codes: Array, code: str, bits: int) -> Array:
    if code in ("", "raw", "unsigned"):
        return codes
    if code == "truth":
        truths: Array = codes != 0
        return truths
    if code == "bfloat16":
        return (codes.astype(np.uint32) << 16).view(np.float32)
    if code == "complex32":
        return codes.astype(np.float32).view(np.complex64)
    if code == "signed":
        signed: Array = (codes << (8 - bits)).view(np.int8) >> (8 - bits)
        return signed
    values: Array = _compute_code_values(code)[codes]
    return values


@lru_cache(maxsize=16)
def _compute_code_values(code: str) -> Array:
    """Return the value of each code of a short float."""
    if code == "hifloat8":
        return np.array([_decode_hifloat8(number) for number in range(256)], np.float32)
    if code == "float8_e8m0":
        return np.array([*(2.0 ** (number - 127) for number in range(255)), np.nan], np.float32)
    exponent, mantissa = (int(digit) for digit in (code[8], code[10]))
    # one exponent bit has the bias 1, as the largest power of two of e1m2 is 1
    bias = max((1 << (exponent - 1)) - 1, 1)
    values: list[float] = []
    for number in range(1 << (1 + exponent + mantissa)):
        power, part = (number >> mantissa) & ((1 << exponent) - 1), number & ((1 << mantissa) - 1)
        size = (part + (1 << mantissa if power else 0)) * 2.0 ** (max(power, 1) - bias - mantissa)
        if code == "float8_e5m2" and power == 31:
            size = np.nan if part else np.inf
        if code == "float8_e4m3fn" and (power, part) == (15, 7):
            size = np.nan
        values.append(-size if number >> (exponent + mantissa) else size)
    return np.array(values, np.float32)


_PREFIXES = ((0b11, 2, 4), (0b10, 2, 3), (0b01, 2, 2), (0b001, 3, 1), (0b0001, 4, 0))
"""The prefixes of HiFloat8, with their lengths and the number of bits of the exponent."""


def _decode_hifloat8(number: int) -> float:
    """Return the value of a code of HiFloat8, in which the exponent has a varying number of bits.

    After the sign, a prefix says how many: 11 four, 10 three, 01 two, 001 one, 0001 none; the rest is the
    mantissa. The exponent is a sign and a magnitude whose first bit, 1, is not written. After 0000 there are
    three bits M of a value 2 ** (M - 23). The code of -0 is NaN, and the largest magnitude is infinity.
    """
    sign = -1.0 if number & 0x80 else 1.0
    rest = number & 0x7F
    if rest == 0:
        return np.nan if number else 0.0
    if rest == 0x6F:
        return sign * np.inf
    matches = [(length, digits) for prefix, length, digits in _PREFIXES if rest >> (7 - length) == prefix]
    if not matches:
        return sign * 2.0 ** (rest - 23)
    length, digits = matches[0]
    width = 7 - length - digits
    part, power = rest & ((1 << width) - 1), 0
    if digits:
        field = (rest >> width) & ((1 << digits) - 1)
        magnitude = (1 << (digits - 1)) | (field & ((1 << (digits - 1)) - 1))
        power = -magnitude if field >> (digits - 1) else magnitude
    return sign * (1 + part / (1 << width)) * 2.0**power
