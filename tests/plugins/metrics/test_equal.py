"""Equality of bits: in every dtype, to the last byte, whatever the byte order."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from probe_metrics.equal import Equal
from support.cases import every
from support.measuring import look
from support.references.metric_reference import DTYPES, pairs


def test_a_difference_beyond_a_mebibyte_is_seen() -> None:
    """Equality is looked at in steps of that many bytes."""
    golden = np.zeros((1 << 20) + 3, np.uint8)
    for place in (0, (1 << 20) - 1, 1 << 20, (1 << 20) + 2):
        target = golden.copy()
        target[place] = 1
        assert look(Equal(), target, golden) == [False]
    assert look(Equal(), golden.copy(), golden) == [True]


def test_equal_looks_at_bits() -> None:
    """A nan of other bits is another value to whoever hashes the tensor; the same bits are the same."""
    quiet, other = np.array([0x7FC00000, 0x7FC00001], np.uint32).view(np.float32)
    assert look(Equal(), np.array([quiet, 1]), np.array([quiet, 1])) == [True]
    assert look(Equal(), np.array([quiet, 1]), np.array([other, 1])) == [False]


def test_equal_of_different_dtypes() -> None:
    assert look(Equal(), np.ones(2, np.float32), np.ones(2)) == [False]
    assert look(Equal(), np.zeros(2, np.int32), np.zeros(2, np.uint32)) == [False]
    assert look(Equal(), np.zeros(2, np.float16), np.zeros(2, ml_dtypes.bfloat16)) == [False]


def test_equal_of_different_byte_order() -> None:
    """The byte order of a number is not part of it."""
    array = np.array([1.5, -2.0], "<f4")
    assert look(Equal(), array.astype(">f4"), array) == [True]


@every("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_equal_in_every_dtype(dtype: Any) -> None:
    golden = pairs(dtype)[1]
    other = golden.copy()
    other.view("u1")[1, 2] ^= 1
    assert look(Equal(), golden.copy(), golden) == [True]
    assert look(Equal(), other, golden) == [False]
