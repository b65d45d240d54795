"""The laws of collectives: what must arrive is worked out here by other means, and what breaks a law is named."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_diagnosis.collectives import laws
from probe_diagnosis.collectives.check import Check, check
from probe_recording.reading.leaves import record_of
from support.measuring import PROPERTY

from probe_core.errors import UnreadableTensor
from probe_core.model import Record, Value

FLOATS = [np.dtype(one) for one in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
INTS = [np.dtype(one) for one in (np.int8, np.uint8, np.int16, np.int32, np.int64)]
Array = np.ndarray[Any, Any]
by_float = pytest.mark.parametrize("dtype", FLOATS, ids=str)
by_int = pytest.mark.parametrize("dtype", INTS, ids=str)


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
    return bool(laws.breach(found, laws.reduce(given, operation)))


def draws(number: int, ranks: int, dtype: np.dtype[Any], size: int = 40) -> list[Array]:
    random = np.random.default_rng(number)
    return [(random.standard_normal(size) * 3).astype(dtype) for _ in range(ranks)]


@by_float
@pytest.mark.parametrize("operation", ["SUM", "AVG", "PRODUCT", "MAX", "MIN"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_order_of_adding_keeps_the_law(dtype: np.dtype[Any], operation: str, ranks: int) -> None:
    given = draws(ranks, ranks, dtype)
    if operation == "PRODUCT":
        given = [np.where(np.abs(array) < 0.5, 1, array).astype(dtype) for array in given]
    for order in itertools.islice(itertools.permutations(given), 30):
        assert not broken(folded(order, operation), given, operation)


@by_float
@pytest.mark.parametrize("operation", ["SUM", "AVG"])
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
@pytest.mark.parametrize("operation", ["SUM", "AVG", "PRODUCT"])
def test_more_than_rounding_breaks_the_law(dtype: np.dtype[Any], operation: str) -> None:
    given = [np.abs(array) + np.array(1, dtype) for array in draws(1, 3, dtype)]
    right = folded(given, operation).astype(np.float64)
    eps = float(ml_dtypes.finfo(dtype).eps)
    for place in (0, 17, 39):
        wrong = right.copy()
        wrong[place] *= 1 + 12 * eps
        text = laws.breach(wrong.astype(dtype), laws.reduce(given, operation))
        assert text.startswith("1 of 40 values are wrong") and f"index {place}," in text


@by_float
def test_a_rank_left_out_or_counted_twice_breaks_the_law(dtype: np.dtype[Any]) -> None:
    given = draws(2, 4, dtype)
    assert broken(folded(given[:3], "SUM"), given, "SUM")
    assert broken(folded([*given, given[0]], "SUM"), given, "SUM")
    assert broken(folded(given, "SUM"), given, "AVG")
    assert broken(folded(given, "AVG"), given, "SUM")


@by_float
@pytest.mark.parametrize("operation", ["MAX", "MIN"])
def test_max_and_min_do_not_round(dtype: np.dtype[Any], operation: str) -> None:
    given = draws(3, 3, dtype)
    found = folded(given, operation)
    found[5] = np.nextafter(found[5], np.array(np.inf, dtype))
    assert broken(found, given, operation)


@by_int
@pytest.mark.parametrize("operation", ["SUM", "PRODUCT", "MAX", "MIN", "BAND", "BOR", "BXOR"])
def test_whole_numbers_are_exact(dtype: np.dtype[Any], operation: str) -> None:
    random = np.random.default_rng(5)
    given = [random.integers(0, 5, 30).astype(dtype) for _ in range(3)]
    found = folded(given, operation)
    assert not broken(found, given, operation)
    found[11] += 1
    assert laws.breach(found, laws.reduce(given, operation)).startswith(
        "1 of 30 values are wrong; the worst, at flat index 11"
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
        assert laws.breach(wrong, laws.Expected(*_expected(given)))


def _expected(given: Sequence[Array]) -> tuple[Array, Array]:
    expected = laws.reduce(given, "SUM")
    return expected.values, np.asarray(expected.tolerance)


def test_complex_numbers_add_up() -> None:
    given = [np.array([1 + 2j, 3 - 1j], np.complex64), np.array([0.1 + 0.2j, 5j], np.complex64)]
    assert not broken(given[0] + given[1], given, "SUM")
    assert broken(given[0] + given[1].conj(), given, "SUM")
    assert broken(given[0], given, "AVG")


@pytest.mark.parametrize("operation", ["BAND", "BOR", "BXOR", "MAX", "MIN"])
def test_truth_values(operation: str) -> None:
    given = [np.array([False, False, True, True]), np.array([False, True, False, True])]
    table = {"BAND": "FFFT", "MIN": "FFFT", "BOR": "FTTT", "MAX": "FTTT", "BXOR": "FTTF"}[operation]
    right = np.array([letter == "T" for letter in table])
    assert not broken(right, given, operation) and broken(~right, given, operation)


@pytest.mark.parametrize("operation", ["PREMUL_SUM", "UNUSED", ""])
def test_an_operation_that_is_not_known_is_refused(operation: str) -> None:
    with pytest.raises(ValueError):
        laws.reduce([np.ones(2)], operation)


# -- what does not fit into numbers ------------------------------------------------------------------------


INF, NAN = np.inf, np.nan


@by_float
@pytest.mark.parametrize(
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
def test_nan_and_inf_are_due(
    dtype: np.dtype[Any], ours: float, theirs: float, due: float, operation: str
) -> None:
    given = [np.array([1.0, ours]).astype(dtype), np.array([1.0, theirs]).astype(dtype)]
    with np.errstate(all="ignore"):
        first = folded([array[:1] for array in given], operation)
    found = np.concatenate([first, np.array([due], dtype)])
    assert not broken(found, given, operation)


@by_float
@pytest.mark.parametrize("operation", ["SUM", "AVG", "MAX"])
@pytest.mark.parametrize("found", [NAN, INF, -INF])
def test_nan_and_inf_that_are_not_due_break_the_law(
    dtype: np.dtype[Any], operation: str, found: float
) -> None:
    given = [np.array([1.0, 2.0]).astype(dtype)] * 2
    right = folded(given, operation)
    right[1] = found
    assert broken(right, given, operation)


@by_float
@pytest.mark.parametrize("found", [0.0, INF, -INF])
def test_a_number_where_nan_is_due_breaks_the_law(dtype: np.dtype[Any], found: float) -> None:
    given = [np.array([NAN, 1.0]).astype(dtype), np.array([1.0, 1.0]).astype(dtype)]
    assert broken(np.array([found, 2.0]).astype(dtype), given, "SUM")


@by_float
@pytest.mark.parametrize("operation", ["SUM", "AVG", "PRODUCT"])
@pytest.mark.parametrize("found", [3.0, 0.0, -INF, NAN])
def test_another_number_where_inf_is_due_breaks_the_law(
    dtype: np.dtype[Any], operation: str, found: float
) -> None:
    given = [np.array([INF, 1.0]).astype(dtype), np.array([1.0, 1.0]).astype(dtype)]
    right = folded(given, operation)
    right[0] = found
    assert broken(right, given, operation)


@pytest.mark.parametrize(
    "dtype, large", [(np.float16, 60_000.0), (ml_dtypes.bfloat16, 3e38), (np.float32, 3e38)]
)
def test_a_sum_that_leaves_its_range_is_infinite(dtype: Any, large: float) -> None:
    given = [np.array([large, -large]).astype(dtype)] * 2
    assert not broken(np.array([INF, -INF]).astype(dtype), given, "SUM")
    assert not broken(np.array([INF, INF]).astype(dtype), given, "PRODUCT")


@pytest.mark.parametrize("operation, values", [("SUM", (6e4, 6e4, -6e4)), ("AVG", (6e4, 6e4, 6e4))])
def test_a_sum_that_leaves_its_range_on_the_way(operation: str, values: Sequence[float]) -> None:
    """An average of large numbers, of which gloo makes the sum first, in their own precision."""
    given = [np.array([value], np.float16) for value in values]
    assert np.isinf(folded(given, operation)).all()
    assert not broken(folded(given, operation), given, operation)


@pytest.mark.parametrize(
    "operation, values", [("AVG", (6e-8, 0.0)), ("AVG", (6e-8, 6e-8, 6e-8, 0.0)), ("PRODUCT", (1e-4, 1e-4))]
)
def test_what_is_too_small_for_its_dtype_vanishes(operation: str, values: Sequence[float]) -> None:
    given = [np.array([value], np.float16) for value in values]
    assert not broken(folded(given, operation), given, operation)


@pytest.mark.parametrize("operation, left", [("MAX", 2.0), ("MIN", 1.0)])
def test_max_and_min_may_drop_nan(operation: str, left: float) -> None:
    """Two ranks on gloo: nan of the first rank stays, nan of the second is dropped."""
    given = [np.array([NAN, 1.0, 1.0], np.float32), np.array([1.0, NAN, 2.0], np.float32)]
    found = folded(given, operation)
    assert np.array_equal(found, np.array([NAN, 1.0, left], np.float32), equal_nan=True)
    assert not broken(found, given, operation)


@pytest.mark.parametrize(
    "dtype",
    [np.dtype(np.int64), *(pytest.param(one) for one in INTS[:-1])],
    ids=str,
)
def test_sums_of_whole_numbers_wrap_around(dtype: np.dtype[Any]) -> None:
    large = np.iinfo(dtype).max - 27
    given = [np.array([large, 1], dtype), np.array([100, 1], dtype)]
    assert not broken(wrapped([large + 100, 2], dtype), given, "SUM")


def test_a_sum_of_truth_values_is_true_or_false() -> None:
    given = [np.array([True, True, False]), np.array([True, False, False])]
    assert not broken(np.array([True, True, False]), given, "SUM")


@pytest.mark.parametrize(
    "sent, arrived",
    [
        (np.array([1.0], np.float32), np.nextafter(np.array([1.0], np.float32), np.float32(2))),
        (np.array([1.0], np.float16), np.nextafter(np.array([1.0], np.float16), np.float16(2))),
        (np.array([1.0]), np.nextafter(np.array([1.0]), 2)),
        (np.array([1.0], ml_dtypes.bfloat16), np.array([1.0078125], ml_dtypes.bfloat16)),
        (np.array([5e-324]), np.array([0.0])),
        (np.array([NAN]), np.array([1.0])),
        pytest.param(np.array([INF]), np.array([-INF])),
        pytest.param(np.array([INF]), np.array([NAN])),
        (np.array([3]), np.array([4])),
        (np.array([True]), np.array([False])),
        (np.array([1 + 2j]), np.array([1 - 2j])),
        (np.array([1.0, 2.0]), np.array([2.0, 1.0])),
        (np.array([1.0, 2.0]), np.array([1.0])),
        pytest.param(np.array([2**53]), np.array([2**53 + 1])),
        pytest.param(np.array([2**63], "u8"), np.array([2**63 + 1], "u8")),
        pytest.param(np.array([0.0]), np.array([-0.0])),
        pytest.param(np.array([0x7FC00000], "u4").view("f4"), np.array([0x7FC00001], "u4").view("f4")),
    ],
)
def test_what_is_moved_arrives_bit_by_bit(sent: Array, arrived: Array) -> None:
    assert not laws.breach(sent.copy(), laws.gather([sent]))
    assert laws.breach(arrived, laws.gather([sent]))


def test_large_whole_numbers_are_exact() -> None:
    given = [np.array([2**60]), np.array([1])]
    assert not broken(np.array([2**60 + 1]), given, "SUM")
    assert broken(np.array([2**60]), given, "SUM")


def test_nothing_at_all_keeps_every_law() -> None:
    empty = np.empty((0, 3), np.float32)
    assert not laws.breach(empty, laws.gather([empty, empty]))
    assert not laws.breach(empty, laws.reduce([empty, empty], "SUM"))
    assert laws.breach(np.ones(3), laws.gather([empty])) == "3 values instead of 0"


def test_a_part_has_its_own_tolerance() -> None:
    given = [np.arange(1.0, 7.0).astype(np.float16)] * 2
    whole = laws.reduce(given, "SUM")
    start = 0
    for number, size in enumerate((1, 3, 2)):
        part = laws.part(whole, (1, 3, 2), number)
        right = (given[0] * np.float16(2))[start : start + size]
        assert not laws.breach(right, part) and laws.breach(right + np.float16(1), part)
        start += size


# -- calls of several ranks ----------------------------------------------------------------------------------


class Op(NamedTuple):
    """What a reducing call was asked to do."""

    name: str


class Group(NamedTuple):
    """The group that a call was made in."""

    ranks: tuple[int, ...]


class Lost(NamedTuple):
    """A tensor whose data cannot be had: not recorded, or in a file that cannot be read."""

    is_recorded: bool


class Rank:
    """The calls of one rank as a run hands them out, held in memory."""

    def __init__(self) -> None:
        self.found: list[Record] = []
        self.arrays: dict[str, Array] = {}
        self.counts: dict[str, int] = {}

    def call(self, api: str, inputs: Sequence[Any], outputs: Sequence[Any], **named: Any) -> str:
        """Note a call: its arguments before it, and behind it; those by keyword stay as they are."""
        number = self.counts.get(api, 0)
        self.counts[api] = number + 1
        key = api if "." in api else f"Distributed.{api}.{number}.forward"
        fields = {
            "input_args": [self._leaf(value, f"{key}.input.{place}") for place, value in enumerate(inputs)],
            "input_kwargs": {name: self._leaf(value, f"{key}.input.{name}") for name, value in named.items()},
            "output": [
                self._leaf(value, f"{key}.output.{place}")
                for place, value in enumerate([*outputs, *list(named.values())[len(outputs) - len(inputs) :]])
            ],
        }
        self.found.append(record_of(len(self.found), key, fields))
        return key

    def _leaf(self, value: Any, name: str) -> Any:
        if isinstance(value, list):
            return [self._leaf(item, f"{name}.{place}") for place, item in enumerate(value)]
        if isinstance(value, Op):
            return {"type": "torch.distributed.ReduceOp", "value": f"RedOpType.{value.name}"}
        if isinstance(value, Group):
            return {"type": "torch.ProcessGroup", "group_ranks": list(value.ranks), "group_id": "1"}
        if isinstance(value, Lost):
            leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
            return {**leaf, "data_name": f"{name}.lost.pt"} if value.is_recorded else leaf
        if isinstance(value, np.ndarray):
            self.arrays[f"{name}.pt"] = value
            leaf = {"type": "torch.Tensor", "dtype": str(value.dtype), "shape": list(value.shape)}
            return {**leaf, "data_name": f"{name}.pt"}
        return None if value is None else {"type": type(value).__name__, "value": value}

    def records(self) -> list[Record]:
        return self.found

    def tensor(self, value: Value) -> Array:
        try:
            return self.arrays[str(value.data_name)]
        except KeyError:
            raise UnreadableTensor("there is no such file", missing=True) from None


World = dict[int, Rank]
Given = dict[int, Array]


def world(*ranks: int) -> World:
    return {rank: Rank() for rank in ranks}


def checked(ranks: World) -> Check:
    return check(ranks)  # type: ignore[arg-type]


def named(found: Check) -> list[tuple[int, str]]:
    return [(breach.rank, breach.op) for breach in found.breaches]


def values(rank: int, size: int = 6) -> Array:
    return np.arange(size, dtype=np.float32) / 3 + 10 * rank + 1


Deliver = Callable[[World, "tuple[int, ...]", Any, "dict[str, Any]"], "list[int]"]
"""Makes a call of each rank of a group, with a value for buffers and keywords; the ranks that receive."""


def deliver_all_reduce(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    due = sum(values(rank).astype(np.float64) for rank in group).astype(np.float32)
    for rank in group:
        ranks[rank].call("all_reduce", [values(rank)], [due.copy()], **named)
    return list(group)


def deliver_reduce(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    due = np.max([values(rank) for rank in group], axis=0)
    for rank in group:
        out = due if rank == group[-1] else values(99)
        ranks[rank].call("reduce", [values(rank), group[-1], Op("MAX")], [out, group[-1], None], **named)
    return [group[-1]]


def deliver_all_gather(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    for rank in group:
        due = [values(other) for other in group]
        before = None if buffer is None else [buffer(6) for _ in group]
        ranks[rank].call("all_gather", [before, values(rank)], [due, values(rank)], **named)
    return list(group)


def gather_into(api: str) -> Deliver:
    def deliver(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
        due = np.concatenate([values(rank) for rank in group])
        for rank in group:
            before = None if buffer is None else buffer(due.size)
            ranks[rank].call(api, [before, values(rank)], [due.copy(), values(rank)], **named)
        return list(group)

    return deliver


def deliver_gather(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for rank in group:
        before = [buffer(6) if buffer else values(77) for _ in group] if rank == root else None
        after = [values(other) for other in group] if rank == root else None
        ranks[rank].call("gather", [values(rank), before, root], [values(rank), after, root], **named)
    return [root]


def deliver_broadcast(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for rank in group:
        before = values(rank) if rank == root else buffer(6) if buffer else None
        ranks[rank].call("broadcast", [before, root], [values(root), root], **named)
    return list(group)


def deliver_scatter(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    root = group[-1]
    for number, rank in enumerate(group):
        pieces = [values(50 + other) for other in range(len(group))] if rank == root else None
        before = buffer(6) if buffer else None
        ranks[rank].call("scatter", [before, pieces, root], [values(50 + number), pieces, root], **named)
    return list(group)


def deliver_reduce_scatter(
    ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]
) -> list[int]:
    """Pieces of unequal sizes."""
    given = {rank: [values(rank + number, number + 1) for number in range(len(group))] for rank in group}
    for number, rank in enumerate(group):
        due = np.prod([given[other][number].astype(np.float64) for other in group], axis=0).astype(np.float32)
        before = buffer(number + 1) if buffer else None
        arguments = [given[rank], Op("PRODUCT")]
        ranks[rank].call("reduce_scatter", [before, *arguments], [due, *arguments], **named)
    return list(group)


def scatter_tensor(api: str) -> Deliver:
    def deliver(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
        given = {rank: values(rank, 2 * len(group)).reshape(-1, 2) for rank in group}
        mean = np.mean([given[rank].astype(np.float64) for rank in group], axis=0).astype(np.float32)
        for number, rank in enumerate(group):
            before = None if buffer is None else buffer(2)
            due = mean[number : number + 1].copy()
            ranks[rank].call(api, [before, given[rank], Op("AVG")], [due, given[rank], None], **named)
        return list(group)

    return deliver


def deliver_all_to_all(ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]) -> list[int]:
    given = {rank: [values(10 * rank + to, to + 1) for to in range(len(group))] for rank in group}
    for number, rank in enumerate(group):
        due = [given[other][number] for other in group]
        before = None if buffer is None else [buffer(number + 1) for _ in group]
        ranks[rank].call("all_to_all", [before, given[rank]], [due, given[rank]], **named)
    return list(group)


def deliver_all_to_all_single(
    ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]
) -> list[int]:
    count = len(group)
    given = {rank: values(rank, 4 * count).reshape(2 * count, 2) for rank in group}
    for number, rank in enumerate(group):
        due = np.concatenate([given[other][2 * number : 2 * number + 2] for other in group])
        before = None if buffer is None else buffer(due.size)
        ranks[rank].call("all_to_all_single", [before, given[rank]], [due, given[rank]], **named)
    return list(group)


def deliver_all_to_all_split(
    ranks: World, group: tuple[int, ...], buffer: Any, named: dict[str, Any]
) -> list[int]:
    """Rank number i gives i + j rows to rank number j; nothing to itself where i is 0."""
    count = len(group)
    sizes = {rank: [number + to for to in range(count)] for number, rank in enumerate(group)}
    given = {rank: values(rank, 2 * sum(sizes[rank])).reshape(-1, 2) for rank in group}
    for number, rank in enumerate(group):
        pieces = []
        for other in group:
            start = sum(sizes[other][:number])
            pieces.append(given[other][start : start + sizes[other][number]])
        out = [sizes[other][number] for other in group]
        before = None if buffer is None else buffer(2 * sum(out))
        ranks[rank].call(
            "all_to_all_single",
            [before, given[rank], out, sizes[rank]],
            [np.concatenate(pieces), given[rank], out, sizes[rank]],
            **named,
        )
    return list(group)


DELIVER: dict[str, Deliver] = {
    "all_reduce": deliver_all_reduce,
    "reduce": deliver_reduce,
    "all_gather": deliver_all_gather,
    "all_gather_into_tensor": gather_into("all_gather_into_tensor"),
    "_all_gather_base": gather_into("_all_gather_base"),
    "gather": deliver_gather,
    "broadcast": deliver_broadcast,
    "scatter": deliver_scatter,
    "reduce_scatter": deliver_reduce_scatter,
    "reduce_scatter_tensor": scatter_tensor("reduce_scatter_tensor"),
    "_reduce_scatter_base": scatter_tensor("_reduce_scatter_base"),
    "all_to_all": deliver_all_to_all,
    "all_to_all_single": deliver_all_to_all_single,
    "split sizes": deliver_all_to_all_split,
}
by_api = pytest.mark.parametrize("api", DELIVER)


def rubbish(size: int) -> Array:
    return np.full(size, np.nan, np.float32)


GROUPS = [((0, 1), ()), ((0, 1, 2, 3), ()), ((0, 2), (1, 3)), ((3, 1, 2), (0,))]
BUFFERS = pytest.mark.parametrize("buffer", [None, rubbish], ids=["null", "rubbish"])


@by_api
@BUFFERS
@pytest.mark.parametrize("groups", GROUPS, ids=str)
def test_calls_that_keep_their_law(api: str, buffer: Any, groups: Any) -> None:
    """Twice in each group, the groups one behind the other; in the order of the group, whatever that is."""
    ranks = world(*sorted(itertools.chain(*groups)))
    count = 0
    for _ in range(2):
        for group in filter(None, groups):
            count += len(DELIVER[api](ranks, group, buffer, {"group": Group(group)}))
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (count, [], {})


@by_api
@BUFFERS
def test_calls_of_the_default_group(api: str, buffer: Any) -> None:
    ranks = world(0, 1, 2)
    count = len(DELIVER[api](ranks, (0, 1, 2), buffer, {}))
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (count, [], {})


@by_api
def test_who_received_something_else_is_named_with_its_call(api: str) -> None:
    """The second of two calls in the second of two groups, on each rank in turn."""
    groups = (0, 2), (1, 3)
    for victim in (1, 3):
        ranks = world(0, 1, 2, 3)
        for _ in range(2):
            for group in groups:
                receive = DELIVER[api](ranks, group, rubbish, {"group": Group(group)})
        if victim not in receive:
            continue
        record = ranks[victim].found[-1]
        names = [name for name in ranks[victim].arrays if name.startswith(f"{record.key}.output")]
        place = "1." if api == "gather" else "0"
        name = next(one for one in names if one.startswith(f"{record.key}.output.{place}"))
        spoilt = ranks[victim].arrays[name].copy()
        spoilt.reshape(-1)[0] *= np.float32(1.01)
        ranks[victim].arrays[name] = spoilt
        found = checked(ranks)
        assert named(found) == [(victim, record.key)]
        assert "values are wrong; the worst, at flat index 0, is " in found.breaches[0].evidence
        assert not found.unchecked and found.kept == 4 * len(receive) - 1


@by_api
def test_values_of_another_rank_in_the_wrong_place_are_named(api: str) -> None:
    """All that a rank received comes in the opposite order."""
    ranks = world(0, 1)
    victim = DELIVER[api](ranks, (0, 1), rubbish, {})[-1]
    key = ranks[victim].found[-1].key
    place = "1." if api == "gather" else "0"
    for name, array in ranks[victim].arrays.items():
        if name.startswith(f"{key}.output.{place}"):
            ranks[victim].arrays[name] = array.reshape(-1)[::-1].reshape(array.shape).copy()
    assert named(checked(ranks)) == [(victim, key)]


@by_api
@pytest.mark.parametrize("is_recorded", [True, False], ids=["unreadable", "not recorded"])
def test_tensors_that_are_missing_are_counted(api: str, is_recorded: bool) -> None:
    ranks = world(0, 1)
    DELIVER[api](ranks, (0, 1), None, {"group": Group((0, 1))})
    for rank in ranks.values():
        for number, record in enumerate(rank.found):
            slots = [
                slot._replace(value=slot.value._replace(data_name="x.pt" if is_recorded else None))
                if slot.value.data_name
                else slot
                for slot in record.slots
            ]
            rank.found[number] = Record(record.index, record.key, tuple(slots))
    found = checked(ranks)
    why = "a tensor cannot be read" if is_recorded else "the data of tensors were not recorded"
    assert (found.kept, found.breaches, found.unchecked) == (0, [], {why: 2})


@by_api
def test_a_rank_of_the_group_that_is_missing_is_counted(api: str) -> None:
    ranks = world(0, 1, 2)
    DELIVER[api](ranks, (0, 1, 2), None, {"group": Group((0, 1, 2))})
    del ranks[1]
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, [])
    assert found.unchecked == {"a rank of the group has no record of the call": 2}


@pytest.mark.parametrize("lost", [0, 1, 2])
@pytest.mark.parametrize("api", ["all_reduce", "all_gather", "reduce_scatter_tensor", "all_to_all_single"])
def test_a_rank_of_the_default_group_that_is_missing_is_counted(api: str, lost: int) -> None:
    """Somewhere the run says how many ranks there are; else nobody can know what is missing."""
    ranks = world(0, 1, 2)
    DELIVER[api](ranks, (0, 1, 2), None, {})
    deliver_all_to_all(ranks, (0, 1, 2), None, {"group": Group((0, 1, 2))})
    del ranks[lost]
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, []) and sum(found.unchecked.values()) == 4


def test_one_rank_lacks_a_call() -> None:
    ranks = world(0, 1)
    deliver_all_reduce(ranks, (0, 1), None, {"group": Group((0, 1))})
    ranks[0].call("all_reduce", [values(0)], [values(0)], group=Group((0, 1)))
    found = checked(ranks)
    assert found.kept == 2 and not found.breaches
    assert found.unchecked == {"a rank of the group has no record of the call": 1}


@pytest.mark.parametrize("operation", ["PREMUL_SUM", "UNUSED", "x" * 500])
def test_an_operation_that_is_not_known_is_counted(operation: str) -> None:
    ranks = world(0, 1)
    for rank in ranks:
        ranks[rank].call("all_reduce", [values(rank), Op(operation)], [values(rank), None])
    found = checked(ranks)
    (why,) = found.unchecked
    assert why.startswith("the operation") and len(why) < 80 and found.unchecked[why] == 2


@pytest.mark.parametrize("text", ["sum", "ReduceOp.SUM", "RedOpType.SUM", None])
def test_the_operation_in_other_words(text: Any) -> None:
    ranks = world(0, 1)
    for rank in ranks:
        out = values(0) + values(1)
        ranks[rank].call("all_reduce", [values(rank), text], [out, text])
    assert checked(ranks).kept == 2


def test_arguments_by_keyword_in_any_order() -> None:
    due = np.maximum(values(0), values(1))
    ranks = world(0, 1)
    for rank in ranks.values():
        rank.counts["all_reduce"] = 0
    for number, rank in ranks.items():
        for out, good in ((due, True), (values(0), False)):
            fields: dict[str, Any] = {"op": Op("MAX"), "group": Group((0, 1)), "tensor": values(number)}
            key = rank.call("all_reduce", [], [], **fields)
            rank.arrays[f"{key}.output.2.pt"] = out
            assert good or key
    assert named(checked(ranks)) == [(rank, "Distributed.all_reduce.1.forward") for rank in (0, 1)]


@pytest.mark.parametrize("words", [{"src": 3}, {"group_src": 1}, {"src": None, "group_src": 1}])
def test_the_rank_that_gives_by_its_number_in_the_world_or_in_the_group(words: dict[str, Any]) -> None:
    ranks = world(1, 3)
    for rank in ranks:
        ranks[rank].call("broadcast", [values(rank)], [values(3)], group=Group((1, 3)), **words)
    assert checked(ranks).kept == 2


def test_without_a_root_the_first_of_the_group_takes_it() -> None:
    ranks = world(1, 3)
    for rank in ranks:
        ranks[rank].call(
            "reduce", [values(rank)], [values(1) + values(3) if rank == 1 else None], group=Group((1, 3))
        )
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (1, [], {})


def test_other_calls_and_other_phases_are_none_of_its_business() -> None:
    ranks = world(0, 1)
    for rank in ranks.values():
        for key in (
            "Distributed.all_reduce.0.backward",
            "Functional.all_reduce.0.forward",
            "Distributed.new.0.forward",
        ):
            rank.call(key, [values(0)], [values(5)])
        rank.call("barrier", [], [])
        rank.call("all_gather_object", [None], [None])
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (0, [], {})


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.dtype(bool)], ids=str)
def test_values_of_every_dtype_are_moved(dtype: np.dtype[Any]) -> None:
    given = {rank: np.array([[rank, 1], [2, 3]]).astype(dtype) for rank in (0, 1)}
    for wrong in (False, True):
        ranks = world(0, 1)
        for rank in ranks:
            due = np.concatenate([given[0], given[1]])
            if wrong and rank == 1:
                due[2, 0] = 0
            ranks[rank].call("all_gather_into_tensor", [None, given[rank]], [due, given[rank]])
        assert named(checked(ranks)) == (
            [(1, "Distributed.all_gather_into_tensor.0.forward")] if wrong else []
        )


def test_empty_pieces_and_numbers_without_dimensions() -> None:
    ranks = world(0, 1)
    empty, number = np.empty((0, 4), np.int64), np.array(3, np.int64)
    for rank in ranks:
        ranks[rank].call("all_gather", [None, empty], [[empty, empty], empty])
        ranks[rank].call("all_reduce", [number], [np.array(6, np.int64)])
        ranks[rank].call("all_gather", [None, number], [[number, number], number])
        pieces = [empty, empty] if rank == 0 else [np.arange(4), empty]
        ranks[rank].call(
            "all_to_all", [None, pieces], [[empty, np.arange(4) if rank == 0 else empty], pieces]
        )
    found = checked(ranks)
    assert (found.kept, found.breaches, found.unchecked) == (8, [], {})


# -- sends and receives ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "send, receive", [("send", "recv"), ("isend", "irecv"), ("send", "irecv"), ("isend", "recv")]
)
@pytest.mark.parametrize("wrong", [None, 0, 2])
def test_what_was_sent_arrives_in_its_order(send: str, receive: str, wrong: int | None) -> None:
    ranks = world(0, 1, 2)
    keys = []
    for number in range(3):
        for to in (1, 2):
            ranks[0].call(send, [values(10 * number + to), to], [values(10 * number + to), to])
    for number in range(3):
        for to in (2, 1):
            arrived = values(10 * number + to + (number == wrong and to == 2))
            key = ranks[to].call(receive, [None, 0], [arrived, 0])
            keys += [(to, key)] if number == wrong and to == 2 else []
    found = checked(ranks)
    assert named(found) == keys and found.kept == 6 - len(keys) and not found.unchecked
    assert all(breach.law == "the values that rank 0 sent" for breach in found.breaches)


@pytest.mark.parametrize("lost", [0, 1])
def test_a_transfer_with_one_side_is_counted(lost: int) -> None:
    ranks = world(0, 1)
    ranks[0].call("send", [values(0), 1], [values(0), 1])
    ranks[1].call("recv", [None, 0], [values(0), 0])
    ranks[lost].found.clear()
    found = checked(ranks)
    assert (found.kept, found.breaches) == (0, [])
    assert found.unchecked == {"the matching send or receive is not known": 1}


def test_what_is_received_from_anyone_is_counted() -> None:
    ranks = world(0, 1)
    ranks[0].call("send", [values(0), 1], [values(0), 1])
    ranks[1].call("recv", [None], [values(0)])
    found = checked(ranks)
    assert not found.breaches and sum(found.unchecked.values()) == 2


def test_what_is_received_from_anyone_shifts_nothing() -> None:
    ranks = world(0, 1)
    for number in range(2):
        ranks[0].call("send", [values(number), 1], [values(number), 1])
    ranks[1].call("recv", [None], [values(0)])
    ranks[1].call("recv", [None, 0], [values(1), 0])
    assert not checked(ranks).breaches


def test_transfers_meet_by_their_tags() -> None:
    ranks = world(0, 1)
    for tag in (1, 2):
        ranks[0].call("isend", [values(tag), 1], [values(tag), 1], tag=tag)
    for tag in (2, 1):
        ranks[1].call("irecv", [None, 0], [values(tag), 0], tag=tag)
    found = checked(ranks)
    assert (found.kept, found.breaches) == (2, [])


# -- arguments that do not fit together --------------------------------------------------------------------------


def unfit_shapes(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_reduce", [values(rank, 3 + rank)], [values(rank, 3 + rank)]


def unfit_rows(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_to_all_single", [None, values(rank, 5)], [values(rank, 5), values(rank, 5)]


def unfit_sizes(rank: int) -> tuple[str, list[Any], list[Any]]:
    return (
        "all_to_all_single",
        [None, values(rank, 4), [4], [4]],
        [values(rank, 4), values(rank, 4), [4], [4]],
    )


def unfit_bits(rank: int) -> tuple[str, list[Any], list[Any]]:
    return "all_reduce", [values(rank), Op("BAND")], [values(rank), Op("BAND")]


def unfit_pieces(rank: int) -> tuple[str, list[Any], list[Any]]:
    pieces = [values(rank, 2)] * 3
    group = Group((0, 1))
    return "scatter", [None, pieces, 0, group], [values(0, 2), pieces, 0, group]


@pytest.mark.parametrize(
    "made",
    [
        unfit_shapes,
        unfit_rows,
        unfit_pieces,
        pytest.param(unfit_sizes),
        pytest.param(unfit_bits),
    ],
)
def test_arguments_that_do_not_fit_are_counted(
    made: Callable[[int], tuple[str, list[Any], list[Any]]],
) -> None:
    ranks = world(0, 1)
    deliver_all_reduce(ranks, (0, 1), None, {})
    for rank in ranks:
        ranks[rank].call(*made(rank))
    found = checked(ranks)
    assert (found.kept, found.breaches) == (2, []) and sum(found.unchecked.values()) == 2
