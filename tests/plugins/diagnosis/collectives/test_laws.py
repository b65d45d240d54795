"""Laws of collectives: results of a group computed by other means."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.collectives import laws
from support.cases import every
from support.measuring import PROPERTY
from support.runs.collectives import FLOATS, INTS, Array

by_float = every("dtype", FLOATS, ids=str)
by_int = every("dtype", INTS, ids=str)
# -- what a group delivers, by other means --------------------------------------------------------------


def folded(arrays: Sequence[Array], operation: str) -> Array:
    """All arrays taken together, one behind the other in their own precision, as a ring of ranks does it."""
    dtype = arrays[0].dtype
    if dtype.kind in "iu":
        return np.array([_whole(column, operation) for column in zip(*arrays)], dtype)
    found = arrays[0]
    with np.errstate(all="ignore"):
        for array in arrays[1:]:
            found = {
                "SUM": lambda a, b: a + b,
                "AVG": lambda a, b: a + b,
                "PRODUCT": lambda a, b: a * b,
                "MAX": lambda a, b: np.where(a < b, b, a),
                "MIN": lambda a, b: np.where(b < a, b, a),
            }[operation](found, array).astype(dtype)
        if operation == "AVG":
            found = (found / np.array(len(arrays), dtype)).astype(dtype)
    return found


def _whole(column: Sequence[Any], operation: str) -> int:
    """Whole numbers in exact arithmetic."""
    values = [int(value) for value in column]
    found = values[0]
    for value in values[1:]:
        found = {
            "SUM": lambda a, b: a + b,
            "PRODUCT": lambda a, b: a * b,
            "MAX": max,
            "MIN": min,
            "BAND": lambda a, b: a & b,
            "BOR": lambda a, b: a | b,
            "BXOR": lambda a, b: a ^ b,
        }[operation](found, value)
    return found


def wrapped(values: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Whole numbers as they are in a dtype that is too small for them."""
    bits = dtype.itemsize * 8
    return np.array([value % (1 << bits) for value in values], f"u{dtype.itemsize}").view(dtype)


def broken(found: Array, given: Sequence[Array], operation: str) -> bool:
    return bool(laws.describe_deviation(found, laws.reduce(given, operation)))


def draws(number: int, ranks: int, dtype: np.dtype[Any], size: int = 40) -> list[Array]:
    random = np.random.default_rng(number)
    return [(random.standard_normal(size) * 3).astype(dtype) for _ in range(ranks)]


@by_float
@every("operation", ["SUM", "AVG", "PRODUCT", "MAX", "MIN"])
@every("ranks", [1, 2, 3, 8])
def test_every_order_of_adding_keeps_the_law(dtype: np.dtype[Any], operation: str, ranks: int) -> None:
    given = draws(ranks, ranks, dtype)
    if operation == "PRODUCT":
        given = [np.where(np.abs(array) < 0.5, 1, array).astype(dtype) for array in given]
    for order in itertools.islice(itertools.permutations(given), 30):
        assert not broken(folded(order, operation), given, operation)


@by_float
@every("operation", ["SUM", "AVG"])
def test_adding_by_halves_and_in_wider_numbers_keeps_the_law(dtype: np.dtype[Any], operation: str) -> None:
    given = draws(5, 8, dtype)
    halves = [given, *([] for _ in range(3))]
    for level in range(3):
        halves[level + 1] = [folded(pair, "SUM") for pair in zip(halves[level][::2], halves[level][1::2])]
    share = 8 if operation == "AVG" else 1
    exact = np.sum([array.astype(np.float64) for array in given], axis=0) / share
    before = folded([(array / np.array(share, dtype)).astype(dtype) for array in given], "SUM")
    for found in ((halves[3][0] / np.array(share, dtype)).astype(dtype), exact.astype(dtype), before):
        assert not broken(found, given, operation)


@by_float
@every("operation", ["SUM", "AVG", "PRODUCT"])
def test_more_than_rounding_breaks_the_law(dtype: np.dtype[Any], operation: str) -> None:
    given = [np.abs(array) + np.array(1, dtype) for array in draws(1, 3, dtype)]
    right = folded(given, operation).astype(np.float64)
    eps = float(ml_dtypes.finfo(dtype).eps)
    for place in (0, 17, 39):
        wrong = right.copy()
        wrong[place] *= 1 + 12 * eps
        text = laws.describe_deviation(wrong.astype(dtype), laws.reduce(given, operation))
        assert text.startswith("1 of 40 values is wrong") and f"index {place}," in text


@by_float
def test_a_rank_left_out_or_counted_twice_breaks_the_law(dtype: np.dtype[Any]) -> None:
    given = draws(2, 4, dtype)
    assert broken(folded(given[:3], "SUM"), given, "SUM")
    assert broken(folded([*given, given[0]], "SUM"), given, "SUM")
    assert broken(folded(given, "SUM"), given, "AVG")
    assert broken(folded(given, "AVG"), given, "SUM")


@by_float
@every("operation", ["MAX", "MIN"])
def test_max_and_min_do_not_round(dtype: np.dtype[Any], operation: str) -> None:
    given = draws(3, 3, dtype)
    found = folded(given, operation)
    found[5] = np.nextafter(found[5], np.array(np.inf, dtype))
    assert broken(found, given, operation)


@by_int
@every("operation", ["SUM", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"])
def test_whole_numbers_are_exact(dtype: np.dtype[Any], operation: str) -> None:
    random = np.random.default_rng(5)
    given = [random.integers(0, 5, 30).astype(dtype) for _ in range(3)]
    found = folded(given, operation)
    assert not broken(found, given, operation)
    found[11] += 1
    assert laws.describe_deviation(found, laws.reduce(given, operation)).startswith(
        "1 of 30 values is wrong; the worst, at flat index 11"
    )


@PROPERTY
@given(
    st.lists(st.lists(st.integers(-(2**50), 2**50), min_size=3, max_size=3), min_size=1, max_size=5),
    st.data(),
)
def test_whole_numbers_add_up_exactly(values: list[list[int]], data: Any) -> None:
    given = [np.array(one, np.int64) for one in values]
    right = [sum(column) for column in zip(*values)]
    assert not broken(np.array(right, np.int64), given, "SUM")
    right[data.draw(st.integers(0, 2))] += data.draw(st.sampled_from([-1, 1]))
    assert broken(np.array(right, np.int64), given, "SUM")


@PROPERTY
@given(
    st.sampled_from(FLOATS),
    st.lists(st.lists(st.integers(-(2**9), 2**9), min_size=4, max_size=4), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
)
def test_sums_in_any_order_keep_the_law(dtype: np.dtype[Any], values: list[list[int]], random: Any) -> None:
    """Exact fractions say what is due; what rounding gives must be within the bound that is documented."""
    given = [(np.array(one) / 7).astype(dtype) for one in values]
    shuffled = given.copy()
    random.shuffle(shuffled)
    found = folded(shuffled, "SUM")
    assert not broken(found, given, "SUM")
    eps = Fraction(float(ml_dtypes.finfo(dtype).eps))
    for place in range(4):
        column = [Fraction(float(array[place])) for array in given]
        bound = (len(given) + 1) * eps * sum(map(abs, column))
        wrong = found.astype(np.float64)
        wrong[place] = float(sum(column)) + 1.5 * float(bound) + 1e-3
        assert abs(Fraction(float(found[place])) - sum(column)) <= bound
        assert laws.describe_deviation(wrong, laws.ExpectedBuffer(*_expected(given)))


def _expected(given: Sequence[Array]) -> tuple[Array, Array]:
    expected = laws.reduce(given, "SUM")
    return expected.values, np.asarray(expected.tolerance)


def test_complex_numbers_add_up() -> None:
    given = [np.array([1 + 2j, 3 - 1j], np.complex64), np.array([0.1 + 0.2j, 5j], np.complex64)]
    assert not broken(given[0] + given[1], given, "SUM")
    assert broken(given[0] + given[1].conj(), given, "SUM")
    assert broken(given[0], given, "AVG")


@every("operation", ["BAND", "BOR", "BXOR", "MAX", "MIN"])
def test_truth_values(operation: str) -> None:
    given = [np.array([False, False, True, True]), np.array([False, True, False, True])]
    table = {"BAND": "FFFT", "MIN": "FFFT", "BOR": "FTTT", "MAX": "FTTT", "BXOR": "FTTF"}[operation]
    right = np.array([letter == "T" for letter in table])
    assert not broken(right, given, operation) and broken(~right, given, operation)


@every("operation", ["PREMUL_SUM", "UNUSED", ""])
def test_an_operation_that_is_not_known_is_refused(operation: str) -> None:
    with pytest.raises(ValueError):
        laws.reduce([np.ones(2)], operation)


# -- what does not fit into numbers ------------------------------------------------------------------------


INF, NAN = np.inf, np.nan


@by_float
@every(
    "ours, theirs, due, operation",
    [
        (INF, 1.0, INF, "SUM"),
        (-INF, 1.0, -INF, "AVG"),
        (INF, -INF, NAN, "SUM"),
        (NAN, 1.0, NAN, "SUM"),
        (0.0, INF, NAN, "PRODUCT"),
        (INF, -2.0, -INF, "PRODUCT"),
        (INF, 1.0, INF, "MAX"),
        (NAN, NAN, NAN, "MAX"),
    ],
)
def test_nan_and_inf_are_due(dtype: np.dtype[Any], ours: float, theirs: float, due: float, operation: str) -> None:
    given = [np.array([1.0, ours]).astype(dtype), np.array([1.0, theirs]).astype(dtype)]
    with np.errstate(all="ignore"):
        first = folded([array[:1] for array in given], operation)
    found = np.concatenate([first, np.array([due], dtype)])
    assert not broken(found, given, operation)


@by_float
@every("operation", ["SUM", "AVG", "MAX"])
@every("found", [NAN, INF, -INF])
def test_nan_and_inf_that_are_not_due_break_the_law(dtype: np.dtype[Any], operation: str, found: float) -> None:
    given = [np.array([1.0, 2.0]).astype(dtype)] * 2
    right = folded(given, operation)
    right[1] = found
    assert broken(right, given, operation)


@by_float
@every("found", [0.0, INF, -INF])
def test_a_number_where_nan_is_due_breaks_the_law(dtype: np.dtype[Any], found: float) -> None:
    given = [np.array([NAN, 1.0]).astype(dtype), np.array([1.0, 1.0]).astype(dtype)]
    assert broken(np.array([found, 2.0]).astype(dtype), given, "SUM")


@by_float
@every("operation", ["SUM", "AVG", "PRODUCT"])
@every("found", [3.0, 0.0, -INF, NAN])
def test_another_number_where_inf_is_due_breaks_the_law(dtype: np.dtype[Any], operation: str, found: float) -> None:
    given = [np.array([INF, 1.0]).astype(dtype), np.array([1.0, 1.0]).astype(dtype)]
    right = folded(given, operation)
    right[0] = found
    assert broken(right, given, operation)


@every("dtype, large", [(np.float16, 60_000.0), (ml_dtypes.bfloat16, 3e38), (np.float32, 3e38)])
def test_a_sum_that_leaves_its_range_is_infinite(dtype: Any, large: float) -> None:
    given = [np.array([large, -large]).astype(dtype)] * 2
    assert not broken(np.array([INF, -INF]).astype(dtype), given, "SUM")
    assert not broken(np.array([INF, INF]).astype(dtype), given, "PRODUCT")


@every("operation, values", [("SUM", (6e4, 6e4, -6e4)), ("AVG", (6e4, 6e4, 6e4))])
def test_a_sum_that_leaves_its_range_on_the_way(operation: str, values: Sequence[float]) -> None:
    """An average of large numbers, of which gloo makes the sum first, in their own precision."""
    given = [np.array([value], np.float16) for value in values]
    assert np.isinf(folded(given, operation)).all()
    assert not broken(folded(given, operation), given, operation)


@every("operation, values", [("AVG", (6e-8, 0.0)), ("AVG", (6e-8, 6e-8, 6e-8, 0.0)), ("PRODUCT", (1e-4, 1e-4))])
def test_what_is_too_small_for_its_dtype_vanishes(operation: str, values: Sequence[float]) -> None:
    given = [np.array([value], np.float16) for value in values]
    assert not broken(folded(given, operation), given, operation)


@every("operation, left", [("MAX", 2.0), ("MIN", 1.0)])
def test_max_and_min_may_drop_nan(operation: str, left: float) -> None:
    """Two ranks on gloo: nan of the first rank stays, nan of the second is dropped."""
    given = [np.array([NAN, 1.0, 1.0], np.float32), np.array([1.0, NAN, 2.0], np.float32)]
    found = folded(given, operation)
    assert np.array_equal(found, np.array([NAN, 1.0, left], np.float32), equal_nan=True)
    assert not broken(found, given, operation)


@every(
    "dtype",
    [np.dtype(np.int64), *(one for one in INTS[:-1])],
    ids=str,
)
def test_sums_of_whole_numbers_wrap_around(dtype: np.dtype[Any]) -> None:
    large = np.iinfo(dtype).max - 27
    given = [np.array([large, 1], dtype), np.array([100, 1], dtype)]
    assert not broken(wrapped([large + 100, 2], dtype), given, "SUM")


def test_a_sum_of_truth_values_is_true_or_false() -> None:
    given = [np.array([True, True, False]), np.array([True, False, False])]
    assert not broken(np.array([True, True, False]), given, "SUM")


@every(
    "sent, arrived",
    [
        (np.array([1.0], np.float32), np.nextafter(np.array([1.0], np.float32), np.float32(2))),
        (np.array([1.0], np.float16), np.nextafter(np.array([1.0], np.float16), np.float16(2))),
        (np.array([1.0]), np.nextafter(np.array([1.0]), 2)),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16)),
        (np.array([5e-324]), np.array([0.0])),
        (np.array([NAN]), np.array([1.0])),
        (np.array([INF]), np.array([-INF])),
        (np.array([INF]), np.array([NAN])),
        (np.array([3]), np.array([4])),
        (np.array([True]), np.array([False])),
        (np.array([1 + 2j]), np.array([1 - 2j])),
        (np.array([1.0, 2.0]), np.array([2.0, 1.0])),
        (np.array([1.0, 2.0]), np.array([1.0])),
        (np.array([2**53]), np.array([2**53 + 1])),
        (np.array([2**63], "u8"), np.array([2**63 + 1], "u8")),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([0x7FC00000], "u4").view("f4"), np.array([0x7FC00001], "u4").view("f4")),
    ],
)
def test_what_is_moved_arrives_bit_by_bit(sent: Array, arrived: Array) -> None:
    assert not laws.describe_deviation(sent.copy(), laws.gather([sent]))
    assert laws.describe_deviation(arrived, laws.gather([sent]))


def test_large_whole_numbers_are_exact() -> None:
    given = [np.array([2**60]), np.array([1])]
    assert not broken(np.array([2**60 + 1]), given, "SUM")
    assert broken(np.array([2**60]), given, "SUM")


def test_nothing_at_all_keeps_every_law() -> None:
    empty = np.empty((0, 3), np.float32)
    assert not laws.describe_deviation(empty, laws.gather([empty, empty]))
    assert not laws.describe_deviation(empty, laws.reduce([empty, empty], "SUM"))
    assert laws.describe_deviation(np.ones(3), laws.gather([empty])) == "3 values instead of 0"


def test_a_part_has_its_own_tolerance() -> None:
    given = [np.arange(1.0, 7.0).astype(np.float16)] * 2
    whole = laws.reduce(given, "SUM")
    start = 0
    for number, size in enumerate((1, 3, 2)):
        part = laws.extract_part(whole, (1, 3, 2), number)
        right = (given[0] * np.float16(2))[start : start + size]
        assert not laws.describe_deviation(right, part) and laws.describe_deviation(right + np.float16(1), part)
        start += size
