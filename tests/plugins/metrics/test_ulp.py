"""Distances in units of the last place, by steps of nextafter and by ranks among all numbers of a type."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from probe_metrics.ulp import Ulp
from pytest import approx
from support.cases import every
from support.measuring import PROPERTY, look
from support.references.metric_reference import ANY, two_arrays

Array = np.ndarray[Any, Any]

inf = math.inf

SMALL = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip


def all_numbers(dtype: Any) -> Array:
    """Every finite number of a small type, each once, ascending; both zeros are one."""
    width = np.dtype(dtype).itemsize
    with np.errstate(invalid="ignore"):
        patterns = np.arange(1 << 8 * width, dtype=f"u{width}").view(dtype).astype(np.float64)
    return np.unique(patterns[np.isfinite(patterns)])


@pytest.mark.parametrize("name", SMALL)
def test_ulp_is_the_difference_of_ranks(name: str) -> None:
    """Listing all numbers of the type in order, the distance is that of their places."""
    dtype = SMALL[name]
    every = all_numbers(dtype)
    rng = np.random.default_rng(3)
    ours, theirs = rng.choice(every, 500), rng.choice(every, 500)
    apart = np.abs(np.searchsorted(every, ours) - np.searchsorted(every, theirs))
    expected = [apart.max(), apart.mean(), np.mean(apart > 1)]
    assert look(Ulp(), ours.astype(dtype), theirs.astype(dtype)) == approx(expected)


@pytest.mark.parametrize("name", SMALL)
def test_neighbours_are_one_apart(name: str) -> None:
    """All of them, across zero and across every power of two."""
    dtype = SMALL[name]
    every = all_numbers(dtype).astype(dtype)
    assert look(Ulp(), every[1:], every[:-1]) == [1, 1, 0]


@every("dtype", [np.float32, np.float64])
@every("start", [1.0, -1.0, 0.0, -0.0, 1e-45, 3.0e38, -(2.0**20), 0.1])
@every("steps", [1, 31, 32, 33])
@every("towards", [inf, -inf])
def test_ulp_counts_steps(dtype: Any, start: float, steps: int, towards: float) -> None:
    """The number of steps of nextafter; more than 32 are over the limit."""
    golden = np.array([start, 7], dtype)
    target = golden.copy()
    for _ in range(steps):
        target[0] = np.nextafter(target[0], dtype(towards))
    assert look(Ulp(), target, golden) == [steps, steps / 2, 0.5 if steps > 32 else 0]


def test_ulp_by_math_nextafter() -> None:
    """float64 by the standard library's own step, over zero."""
    below, above = 0.0, 0.0
    for _ in range(5):
        below, above = math.nextafter(below, -inf), math.nextafter(above, inf)
    assert look(Ulp(), [below, 1.0], [above, 1.0]) == [10, 5, 0]


@pytest.mark.parametrize(
    ("dtype", "places"),
    [(np.float16, 0x7BFF), (ml_dtypes.bfloat16, 0x7F7F), (np.float32, 0x7F7FFFFF), (np.float64, 0x7FEFFFFFFFFFFFFF)],
)  # fmt: skip
def test_ulp_from_end_to_end(dtype: Any, places: int) -> None:
    """The largest distance there is; it must not overflow."""
    most = ml_dtypes.finfo(dtype).max
    golden = np.array([most], dtype)
    assert look(Ulp(), -golden, golden)[0] == float(2 * places)


@pytest.mark.parametrize(
    ("steps", "dtype", "share"),
    [(1, np.float16, 0), (2, np.float16, 1), (1, ml_dtypes.bfloat16, 0), (2, ml_dtypes.bfloat16, 1),
     (1, ml_dtypes.float8_e5m2, 0), (2, ml_dtypes.float8_e5m2, 1), (32, np.float32, 0), (33, np.float32, 1)],
)  # fmt: skip
def test_ulp_limits(steps: int, dtype: Any, share: float) -> None:
    """The pre-check's standard: 32 for float32, 1 for what is coarser; the limit itself is allowed."""
    golden = np.ones(2, dtype)
    width = golden.dtype.itemsize
    target = (golden.view(f"u{width}") + np.array(steps, f"u{width}")).view(dtype)
    assert look(Ulp(), target, golden) == [steps, steps, share]


def test_ulp_of_different_dtypes_is_that_of_the_coarser() -> None:
    """bfloat16 has 8 bits: 1 + 2**-10 is 1 to it, 1 + 2**-7 the next number; either side may be it."""
    fine = np.array([1 + 2**-10, 1 + 2**-7], np.float32)
    coarse = np.array([1, 1], ml_dtypes.bfloat16)
    assert look(Ulp(), fine, coarse) == look(Ulp(), coarse, fine) == [1, 0.5, 0]
    assert look(Ulp(), np.array([1 + 2**-30]), np.ones(1, np.float32)) == [0, 0, 0]


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.uint8, np.complex64])
def test_ulp_of_what_is_no_real_floating_point(dtype: Any) -> None:
    array = np.ones(2, dtype)
    assert look(Ulp(), array, array) == ["no_number"] * 3
    assert look(Ulp(), array, np.ones(2, np.float32)) == ["no_number"] * 3


@PROPERTY
@given(two_arrays(ANY, np.float32))
def test_ulp_by_integers(arrays: tuple[Array, Array]) -> None:
    """The textbook's way: bit patterns as integers, the negative ones mirrored."""
    found = look(Ulp(), *arrays)
    if found == ["positions"] * 3:
        return
    places = []
    for array in arrays:
        bits = array.ravel().view(np.int32).astype(object)
        places.append([-(2**31) - bit if bit < 0 else bit for bit in bits])
    finite = np.isfinite(arrays[0].ravel())
    apart = [abs(n - b) if real else 0 for n, b, real in zip(*places, finite)]
    size = sum(finite)
    if not size:
        assert found == ["nan"] * 3
        return
    assert found == [max(apart), approx(sum(apart) / size), sum(item > 32 for item in apart) / size]
