"""Values in another order: a kind of difference of their own, by sorted values or by equal statistics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from probe_diagnosis.difference.permuted import is_permutation, mark_permuted
from probe_diagnosis.difference.reason_statement import build_statement
from probe_diagnosis.difference.reasons import CauseKind, DivergenceReason, InputAgreement
from probe_diagnosis.limits import limits
from probe_diagnosis.timeline.compared_calls import Basis, ComparedCall, DifferenceKind, ValueComparison, ValueState

from probe_core.errors import UnreadableTensor
from probe_core.model import Kind, Mode, Record, Side, Slot, Statistics, Value
from probe_core.model.run import Header, HeldRun

OP = "Torch.roll.0.forward"
ROW = f"{OP}.output.0"
DTYPES = ("float16", "float32", "float64", "bool", "int8", "uint8", "int64", "complex64", "complex128")


class Fixed(HeldRun):
    """A run of one call, with one tensor."""

    def __init__(self, key: str, values: Any, statistics: Statistics | None = None, shape: Any = None) -> None:
        self.values_of_it = values
        shape = np.shape(values) if shape is None else shape
        value = Value(Kind.TENSOR, "torch.float32", str(list(shape)), shape, statistics or Statistics())
        record = Record(0, key, (Slot(f"{key}.output.0", Side.OUTPUT, "0", value),))
        super().__init__(Path("run"), Header("tensor", "mix", "pytorch"), Mode.TENSOR, [record])

    def tensor(self, value: Value) -> Any:
        if self.values_of_it is None:
            raise UnreadableTensor("x.npy is missing")
        return np.asarray(self.values_of_it, np.float32)


def plain(value: Any) -> Any:
    """A value that equals another where both are the same: all nan are one, and -0.0 is 0.0."""
    if isinstance(value, complex):
        return plain(value.real), plain(value.imag)
    return "nan" if value != value else value + 0 if isinstance(value, float) else value


def kind(target: Fixed, golden: Fixed, *, by: Basis = Basis.TENSOR, other: str = "") -> DifferenceKind:
    value = ValueComparison(ROW, Side.OUTPUT, ValueState.DIFFERS, 1.0, 1.0, 1e-6, basis=by)
    return mark_permuted(value, ComparedCall(OP, (value,), golden_op=other), (target, golden)).kind


@given(st.data(), st.sampled_from(DTYPES))
def test_an_array_is_a_permutation_if_each_value_is_in_it_as_often(data: st.DataObject, dtype: str) -> None:
    """The reference counts the values in Python."""
    size = data.draw(st.integers(0, 12))
    few = st.sampled_from([0, 1, 3]).map(np.dtype(dtype).type)
    if np.dtype(dtype).kind in "fc":
        few = few | st.sampled_from([-0.0, np.nan, -np.nan, np.inf]).map(np.dtype(dtype).type)
    one, other = (data.draw(arrays.arrays(dtype, size, elements=few)) for _ in range(2))
    expected = Counter(map(plain, one.tolist())) == Counter(map(plain, other.tolist()))
    assert is_permutation(one, other) is expected
    order = np.array(data.draw(st.permutations(range(size))), int)
    assert is_permutation(one, one[order]) and is_permutation(one[order].reshape(1, -1), one)


def test_the_bits_of_nan_and_the_sign_of_zero_do_not_count() -> None:
    odd = np.array([0x7FC00001, 0x7FC00000, 0x80000000, 0], np.uint32).view(np.float32)
    assert is_permutation(odd, np.array([0.0, np.nan, 0.0, np.nan], np.float32))
    assert not is_permutation(odd, np.array([0.0, np.nan, 0.0, 0.0], np.float32))
    assert is_permutation(np.array([complex(-0.0, 1), 2j]), np.array([2j, complex(0.0, 1)]))
    assert not is_permutation(np.array([1 + 2j, 3 + 4j]), np.array([1 + 4j, 3 + 2j]))


def test_other_dtypes_and_sizes_are_no_permutation() -> None:
    assert not is_permutation(np.zeros(3, np.float32), np.zeros(3))
    assert not is_permutation(np.zeros(3), np.zeros(4))
    assert not is_permutation(np.array([1, 1, 2]), np.array([1, 2, 2]))


def test_arrays_are_not_written_to() -> None:
    values = np.array([np.nan, -0.0, 3.0])
    values.flags.writeable = False
    assert is_permutation(values, values[::-1])
    assert np.signbit(values[1])


def test_recorded_tensors_are_sorted() -> None:
    assert kind(Fixed(OP, [1, 2, 3]), Fixed(OP, [3, 1, 2])) is DifferenceKind.PERMUTED
    assert kind(Fixed(OP, [1, 2, 3]), Fixed(OP, [3, 1, 1])) is DifferenceKind.VALUE
    other = "Torch.roll.7.forward"
    assert kind(Fixed(OP, [1, 2]), Fixed(other, [2, 1]), other=other) is DifferenceKind.PERMUTED
    assert kind(Fixed(OP, [1, 2]), Fixed(other, [2, 1])) is DifferenceKind.VALUE


def test_what_cannot_be_read_or_is_too_large_stays_a_difference_of_values() -> None:
    assert kind(Fixed(OP, None, shape=(2,)), Fixed(OP, [2, 1])) is DifferenceKind.VALUE
    large = (limits().max_sorted_elements + 1,)
    assert kind(Fixed(OP, [1, 2], shape=large), Fixed(OP, [2, 1], shape=large)) is DifferenceKind.VALUE


@pytest.mark.parametrize("by", [Basis.CHECKSUM, Basis.EXACT_CHECKSUM])
def test_checksums_say_only_that_values_may_be_in_another_order(by: Basis) -> None:
    same, golden = Statistics(3.0, 1.0, 2.0, 3.74), Fixed(OP, None, Statistics(3.0, 1.0, 2.0, 3.74), (3,))
    assert kind(Fixed(OP, None, same, (3,)), golden, by=by) is DifferenceKind.MAY_BE_PERMUTED
    in_other_order = same._replace(mean=2.0000001)
    assert kind(Fixed(OP, None, in_other_order, (3,)), golden, by=by) is DifferenceKind.MAY_BE_PERMUTED
    for other in (same._replace(max=4.0), same._replace(norm=3.75), same._replace(mean=None), Statistics()):
        assert kind(Fixed(OP, None, other, (3,)), golden, by=by) is DifferenceKind.VALUE
    none = Fixed(OP, None, Statistics(), (3,))
    assert kind(none, none, by=by) is DifferenceKind.VALUE
    assert kind(Fixed(OP, [1, 2], same, (3,)), golden, by=Basis.STATISTICS) is DifferenceKind.VALUE


@pytest.mark.parametrize(
    ("cause", "statement"),
    [
        (CauseKind.INTRODUCED, "returns the same values in another order, although its inputs agree"),
        (CauseKind.RECEIVED, "receives the same values in another order"),
        (CauseKind.GRADIENT, "holds the same values in another order"),
    ],
)
def test_statements_say_so(cause: CauseKind, statement: str) -> None:
    value = ValueComparison(
        ROW, Side.OUTPUT, ValueState.DIFFERS, 1.0, 1.0, 1e-6, basis=Basis.TENSOR, kind=DifferenceKind.PERMUTED
    )
    reason = DivergenceReason(cause, value, InputAgreement(compared=1))
    assert build_statement(reason).brief == statement
    assert reason.evidence["difference_kind"] == "permuted"
