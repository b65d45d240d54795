"""Max, Min, Mean and Norm against float64 sums of numpy's: kernel, fallback and the reductions of devices."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from probe_pytorch import statistics
from probe_pytorch.statistics import NOTHING, Four, decode_results, measure
from support.cases import every
from support.measuring import PROPERTY

FEW = settings(PROPERTY, max_examples=30)
INF, NAN = math.inf, math.nan
TINY = 2.0**-1074
LENGTHS = (1, 2, 15, 16, 17, 31, 32, 33, 47, 48, 49)

FLOATING = {
    "float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn, "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}  # fmt: skip
WHOLE = {name: np.dtype(name) for name in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")}
DTYPES: dict[str, Any] = {n: d for n, d in {**FLOATING, **WHOLE}.items() if hasattr(torch, n)}
COMPLEX = {"complex64": np.complex64, "complex128": np.complex128}


def tensor_of(array: np.ndarray[Any, Any], name: str) -> torch.Tensor:
    """The same bytes as a tensor."""
    raw = torch.from_numpy(np.frombuffer(array.tobytes(), np.uint8).copy())
    return raw.view(getattr(torch, name)).reshape(array.shape)


def reference(array: np.ndarray[Any, Any], mean: bool = True) -> Four:
    """The four, exactly: sums of fractions, and a hypotenuse that neither overflows nor underflows."""
    if array.dtype.kind in "iu":
        values = [int(value) for value in array.ravel()]
        whole = float(Fraction(sum(values), len(values)))
        return max(values), min(values), whole, math.hypot(*map(float, values))
    values = [float(value) for value in array.astype(np.float64).ravel()]
    if any(map(math.isnan, values)):
        return NAN, NAN, NAN, NAN
    high, low = max(values), min(values)
    if math.inf in (high, -low):
        return high, low, NAN if (high, low) == (INF, -INF) else high + low, INF
    whole = float(sum(map(Fraction, values)) / len(values))
    return high, low, whole, math.hypot(*values)


def agree(found: Four, expected: Four, size: float, count: int) -> None:
    """Ends are equal; sums differ by roundings. ``size`` is the largest element."""
    assert [type(value) for value in found] == [type(value) for value in expected]
    for at, (mine, other) in enumerate(zip(found, expected)):
        if other is None or not math.isfinite(other):
            assert mine == other or (mine != mine and other != other), (at, found, expected)
        elif at < 2:
            assert mine == other, (found, expected)
        else:
            assert math.isclose(mine, other, rel_tol=1e-13, abs_tol=size * count * 2**-53 if at == 2 else 0.0), (
                at, found, expected,
            )  # fmt: skip


def check(array: np.ndarray[Any, Any], name: str, find: Callable[[torch.Tensor], Four]) -> None:
    expected = reference(array)
    ends = [abs(value) for value in expected[:2] if value is not None and math.isfinite(value)]
    agree(find(tensor_of(array, name)), expected, float(max(ends, default=0)), array.size)


# -- the three ways ------------------------------------------------------------------------------------


def by_kernel(tensor: torch.Tensor) -> Four:
    assert statistics._tally is not None, "the kernel is not built"
    return measure(tensor)


def by_torch(tensor: torch.Tensor) -> Four:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "_tally", None)
        return measure(tensor)


def as_reducible(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of which this CPU has aminmax, which torch 2.1 lacks for float16, unlike accelerators."""
    try:
        torch.aminmax(torch.ones(1, dtype=torch.float16))
    except RuntimeError:
        return tensor.float() if tensor.dtype is torch.float16 else tensor
    return tensor


def as_on_a_device(tensor: torch.Tensor) -> Four:
    results = statistics._reduce(as_reducible(tensor), torch.float64)
    assert results.dtype is (torch.int64 if tensor.dtype is torch.int64 else torch.float64)
    assert results.shape == (4,)
    return decode_results(results.tolist(), tensor.dtype)


WAYS = {"kernel": by_kernel, "torch": by_torch, "device": as_on_a_device}
every_way = every("way", WAYS.values(), ids=WAYS)
every_dtype = every("name", DTYPES)


@st.composite
def arrays(draw: st.DrawFn, dtype: Any, within: float | None = None) -> np.ndarray[Any, Any]:
    """Any bits at all, among them nan, infinities, zeros of both signs and denormals; often special ones."""
    kind = np.dtype(dtype)
    bits = kind.itemsize * 8
    unsigned = np.dtype(f"uint{bits}")
    if kind.kind in "iu":
        special = [np.iinfo(kind).max, np.iinfo(kind).min, 0, 1]
    else:
        info = ml_dtypes.finfo(kind) if kind.itemsize < 4 else np.finfo(kind)
        special = [float(info.max), float(info.min), float(info.smallest_subnormal), 1.0, -1.5, 0.0]
        special += [NAN, INF, -INF, -0.0] if draw(st.booleans()) else []
    with np.errstate(all="ignore"):
        patterns = np.array(special).astype(kind).view(unsigned).tolist()
    one = st.sampled_from(patterns) | st.integers(0, 2**bits - 1)
    chosen = draw(st.lists(one, min_size=1, max_size=50))
    array = np.array(chosen, unsigned).view(kind)
    if within is not None:
        array[~(np.abs(array) < within) & np.isfinite(array)] = 3.0
        array[np.abs(array) < 1 / within] = 0.0
    return array


@pytest.mark.parametrize("name", DTYPES)
@FEW
@given(st.data())
def test_kernel(name: str, data: st.DataObject) -> None:
    # sums of doubles may overflow, their squares may not
    within = 1e300 if name == "float64" else None
    check(data.draw(arrays(DTYPES[name], within)), name, by_kernel)


@pytest.mark.parametrize("name", DTYPES)
@FEW
@given(st.data())
def test_fallback(name: str, data: st.DataObject) -> None:
    check(data.draw(arrays(DTYPES[name], 1e150 if name == "float64" else None)), name, by_torch)


@pytest.mark.parametrize("name", DTYPES)
@FEW
@given(st.data())
def test_device(name: str, data: st.DataObject) -> None:
    array = data.draw(arrays(DTYPES[name], 1e150 if name == "float64" else None))
    if name in ("int64", "uint64"):  # ends come back as float64
        array = (array >> np.array(11, array.dtype)).astype(array.dtype)
    check(array, name, as_on_a_device)


@FEW
@given(st.data())
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "int16", "uint8"])
def test_device_in_single(name: str, data: st.DataObject) -> None:
    array = data.draw(arrays(DTYPES[name]))
    if name in ("float32", "bfloat16"):  # whose squares leave the range of float
        array[~(np.abs(array) < 1e15)] = 2.0
        array[np.abs(array) < 1e-15] = 0.0
    results = statistics._reduce(as_reducible(tensor_of(array, name)), torch.float32)
    assert results.dtype is (torch.float64 if "int" in name else torch.float32)
    found, expected = decode_results(results.tolist(), getattr(torch, name)), reference(array)
    assert found[:2] == expected[:2] or all(value != value for value in found)
    size = float(np.abs(array.astype(np.float64)).max())
    for mine, other in zip(found[2:], expected[2:]):
        assert math.isclose(mine, other, rel_tol=1e-5, abs_tol=size * 1e-5) or (
            not math.isfinite(other) and (mine == other or mine != mine)
        )


# -- every bit pattern, every place --------------------------------------------------------------------


@every("name", ["float16", "bfloat16", *(n for n in DTYPES if "8" in n)])
def test_every_number_of_a_small_type(name: str) -> None:
    """The kernel widens halves itself."""
    kind = np.dtype(DTYPES[name])
    array = np.arange(2 ** (8 * kind.itemsize)).astype(f"uint{8 * kind.itemsize}").view(kind)
    with np.errstate(invalid="ignore"):
        expected = array.astype(np.float64)
    tensor = tensor_of(array, name)
    for tensor_row, row in zip(tensor.split(1), expected.tolist()):
        found = measure(tensor_row)
        if math.isnan(row):
            assert all(value != value for value in found)
        else:
            assert found == (row, row, row, abs(row)), (row, found)
            assert not row or math.copysign(1.0, found[1]) == math.copysign(1.0, row)


@every_way
@every("name", [n for n in DTYPES if n not in ("float8_e8m0fnu",)])
def test_an_extreme_is_found_at_every_place(name: str, way: Callable[[torch.Tensor], Four]) -> None:
    signed = name[0] != "u"
    for count in LENGTHS:
        for at in range(count):
            array = np.full(count, 2, np.int64)
            array[at], array[(at + 1) % count] = (-48 if signed else 1), 56
            check(array.astype(DTYPES[name]), name, way)


@every_way
@every("name", ["float64", "float32", "float16", "bfloat16", "float8_e5m2"])
@every("special", [NAN, INF, -INF], ids=str)
def test_what_is_not_finite_is_found_at_every_place(
    special: float, name: str, way: Callable[[torch.Tensor], Four]
) -> None:
    for count in LENGTHS:
        for at in range(count):
            array = np.full(count, 2.0)
            array[at] = special
            check(array.astype(DTYPES[name]), name, way)


@every_way
def test_infinities_of_both_signs_have_no_mean(way: Callable[[torch.Tensor], Four]) -> None:
    high, low, mean, norm = way(torch.tensor([INF, 1.0, -INF]))
    assert (high, low, norm) == (INF, -INF, INF) and math.isnan(mean)  # type: ignore[arg-type]


@every_way
def test_zeros(way: Callable[[torch.Tensor], Four]) -> None:
    assert way(torch.tensor([-0.0, 0.0, -0.0])) == (0.0, 0.0, 0.0, 0.0)
    high, low, mean, _ = way(torch.full((40,), -0.0))
    assert [math.copysign(1.0, value) for value in (high, low)] == [-1.0, -1.0]  # type: ignore[arg-type]
    assert mean == 0.0


# -- doubles near the ends of their range ------------------------------------------------------------------

FAR = [
    [1e200, -3e200, 2e200],
    [1.7976931348623157e308],
    [1.7976931348623157e308, -1.7976931348623157e308],
    [1e-200, -3e-200],
    [TINY, 3 * TINY, -2 * TINY],
    [2.2250738585072014e-308] * 33,
    [1e-170, 0.0, -0.0],
    [1e300, 1e-300],
    [1e154, 1e155],
]


@every("values", FAR, ids=repr)
def test_squares_that_leave_the_range_of_double(values: list[float]) -> None:
    found = measure(torch.tensor(values, dtype=torch.float64))
    assert found[3] == pytest.approx(math.hypot(*values), rel=1e-15, abs=TINY)
    check(np.array(values), "float64", by_kernel)


@every("way", [by_torch, as_on_a_device])
@every("values", [FAR[0], FAR[3], FAR[4], FAR[5]], ids=repr)
def test_the_fallback_finds_the_same_norm(values: list[float], way: Callable[[torch.Tensor], Four]) -> None:
    found = way(torch.tensor(values, dtype=torch.float64))
    assert found[3] == pytest.approx(math.hypot(*values), rel=1e-13, abs=TINY)


@every("factor", [2.0**-149, 3.4e38, 1e-30, 1e30])
@every_way
def test_squares_that_leave_the_range_of_float(factor: float, way: Callable[[torch.Tensor], Four]) -> None:
    check((np.array([1.0, -0.5, 1.0]) * factor).astype(np.float32), "float32", way)


@every_way
def test_halves_are_added_up_in_double(way: Callable[[torch.Tensor], Four]) -> None:
    assert way(torch.ones(70_000, dtype=torch.float16)) == pytest.approx((1, 1, 1.0, math.sqrt(70_000)), rel=1e-12)
    assert way(torch.full((4,), 60_000.0, dtype=torch.float16)) == (60_000.0, 60_000.0, 60_000.0, 120_000.0)
    assert way(torch.ones(1000, dtype=torch.bfloat16))[2] == 1.0


# -- whole numbers ---------------------------------------------------------------------------------------


@every("way", [by_kernel, by_torch])
@every(
    "name, values",
    [("int64", [2**53 + 1, -(2**53) - 3, 5]), ("int64", [2**63 - 1, -(2**63)]), ("int64", [2**63 - 1] * 17),
     ("uint64", [2**64 - 1, 2**53 + 1]), ("uint64", [2**63] * 2), ("int32", [2**31 - 1, -(2**31)]),
     ("uint32", [2**32 - 1, 2**24 + 1])],
)  # fmt: skip
def test_large_whole_numbers_are_exact(name: str, values: list[int], way: Callable[[torch.Tensor], Four]) -> None:
    if name not in DTYPES:  # before torch 2.3
        return
    found = way(tensor_of(np.array(values, name), name))
    assert found[:2] == (max(values), min(values))
    assert [type(value) for value in found] == [int, int, float, float]
    assert found[3] == pytest.approx(math.hypot(*map(float, values)), rel=1e-13)


# -- no dimension, no elements, no numbers -----------------------------------------------------------------


@every_dtype
def test_without_dimensions_the_value_four_times(name: str) -> None:
    array = np.array(3 if name[0] == "u" or name == "float8_e8m0fnu" else -3).astype(DTYPES[name])
    value = array.astype(np.float64).item()
    assert measure(tensor_of(array.reshape(1), name)[0]) == (value,) * 4
    assert measure(tensor_of(array.reshape(1), name)[0])[3] == value  # no absolute value


def test_without_dimensions_of_other_kinds() -> None:
    assert measure(torch.tensor(2**53 + 1)) == (2**53 + 1,) * 4
    assert measure(torch.tensor(True)) == (True, True, None, None)
    assert measure(torch.tensor(3 - 4j)) == (5.0, 5.0, 5.0, None)
    assert all(value != value for value in measure(torch.tensor(NAN)))
    assert measure(torch.tensor(-INF)) == (-INF,) * 4
    huge = complex(1e308, 1e308)
    assert measure(torch.tensor(huge, dtype=torch.complex128))[0] == pytest.approx(math.hypot(1e308, 1e308))


def test_a_device_gives_the_value_four_times_too() -> None:
    for name in ("float32", "int64", "float16"):
        tensor = torch.tensor(-3, dtype=getattr(torch, name))
        assert as_on_a_device(tensor) == (-3, -3, -3, -3)
    assert as_on_a_device(torch.tensor(True)) == (True, True, None, None)
    assert as_on_a_device(torch.tensor(3 - 4j)) == (5.0, 5.0, 5.0, None)


@every("name", [*DTYPES, *COMPLEX, "bool"])
@every("shape", [(0,), (3, 0), (0, 0, 2)], ids=str)
def test_without_elements_there_is_nothing(shape: tuple[int, ...], name: str) -> None:
    assert measure(torch.empty(shape, dtype=getattr(torch, name))) == NOTHING == (None,) * 4


@every("numbers", [[-(2**63), -(2**63) + 8], [2**62 + 1, 5], [2**53 + 1, -3]])
def test_a_device_keeps_all_digits_of_large_integers(numbers: list[int]) -> None:
    high, low, mean, norm = as_on_a_device(torch.tensor(numbers))
    wide = np.array(numbers, np.float64)
    assert (high, low) == (max(numbers), min(numbers))
    assert mean == pytest.approx(wide.mean()) and norm == pytest.approx(np.sqrt((wide**2).sum()))


def test_meta_tensors_have_nothing() -> None:
    assert measure(torch.empty(3, device="meta")) == NOTHING
    assert measure(torch.empty((), device="meta")) == NOTHING


@every_way
@every(
    "values, any_of, all_of",
    [([True], True, True), ([False], False, False), ([True, False], True, False), ([False] * 40, False, False),
     ([True] * 40, True, True), ([False] * 39 + [True], True, False)],
)  # fmt: skip
def test_bool_is_any_and_all(
    values: list[bool], any_of: bool, all_of: bool, way: Callable[[torch.Tensor], Four]
) -> None:
    found = way(torch.tensor(values))
    assert found == (any_of, all_of, None, None)
    assert type(found[0]) is type(found[1]) is bool


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("name", COMPLEX)
@FEW
@given(st.data())
def test_complex_is_its_absolute_values(name: str, way: Callable[[torch.Tensor], Four], data: st.DataObject) -> None:
    part = st.floats(-(2.0**50), 2.0**50, width=32) | st.sampled_from([0.0, -0.0, INF, -INF, NAN])
    values = data.draw(st.lists(st.builds(complex, part, part), min_size=1, max_size=40))
    array = np.array(values, COMPLEX[name])
    high, low, mean, norm = way(tensor_of(array, name))
    sizes = np.abs(array).astype(np.float64)
    assert norm is None
    if np.isnan(sizes).any():
        assert all(value != value for value in (high, low, mean))
    else:
        close = 1e-6 if name == "complex64" else 1e-14
        for mine, other in ((high, sizes.max()), (low, sizes.min()), (mean, sizes.mean())):
            assert math.isclose(mine, other, rel_tol=close)  # type: ignore[arg-type]


def test_conjugates_and_negatives_are_carried_out() -> None:
    """Views that carry a sign which their memory does not have."""
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    assert measure(numbers.conj())[:2] == (5.0, pytest.approx(math.sqrt(5.0)))
    assert measure(numbers.conj().imag)[:3] == (4.0, -2.0, 1.0)
    assert measure(numbers[:1].conj().imag) == (-2.0, -2.0, -2.0, 2.0)
    assert measure(torch._neg_view(torch.tensor([1.0, 2.0])))[:3] == (-1.0, -2.0, -1.5)


# -- layouts -----------------------------------------------------------------------------------------------

BASE = torch.arange(2 * 3 * 4 * 5, dtype=torch.float64).sub(17).reshape(2, 3, 4, 5)
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x[0, 0].t(),
    "permuted": lambda x: x.permute(3, 1, 0, 2),
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "every second": lambda x: x[..., ::2],
    "a column": lambda x: x[:, :, :, 1],
    "a row": lambda x: x[1, 2, 3],
    "from the middle": lambda x: x.flatten()[7:30],
    "expanded": lambda x: x[0, 0, 0].expand(6, 5),
    "expanded one": lambda x: x[0, 0, 0, 1].expand(3, 4),
    "expanded and permuted": lambda x: x[:, :1].expand(2, 3, 4, 5).transpose(0, 3),
    "dimensions of one": lambda x: x[:, None, :, None][:, :, :1],
    "overlapping windows": lambda x: x.flatten().unfold(0, 4, 1),
    "as strided": lambda x: x.flatten().as_strided((3, 3), (1, 2), 5),
    "reversed strides with a gap": lambda x: x.flatten().as_strided((2, 3), (1, 10), 3),
}


@every_way
@every("name", ["float64", "float32", "bfloat16", "int64", "int8", "int32"])
@every("layout", LAYOUTS)
def test_layout(layout: str, name: str, way: Callable[[torch.Tensor], Four]) -> None:
    tensor = LAYOUTS[layout](BASE.to(getattr(torch, name)))
    values = np.array(tensor.double().flatten().tolist())
    array = values.astype(np.int64) if "int" in name else values
    agree(way(tensor), reference(array), float(np.abs(values).max()), values.size)


@every("way", [by_kernel, by_torch])
def test_the_tensor_is_left_alone(way: Callable[[torch.Tensor], Four]) -> None:
    base = torch.arange(12.0, requires_grad=True)
    for tensor in (base, base.reshape(3, 4).t(), base[::2], base.detach().long(), base.detach() > 3):
        before = tensor.detach().clone()
        version, node, stride = tensor._version, tensor.grad_fn, tensor.stride()
        way(tensor)
        assert torch.equal(tensor.detach(), before)
        assert (tensor._version, tensor.grad_fn, tensor.stride()) == (version, node, stride)
    assert base.grad is None


# -- what the caller is told -----------------------------------------------------------------------------


@every(
    "values, dtype, expected",
    [([1.0, 0.0, 0.5, 1.0], torch.bool, (True, False, None, None)),
     ([5.0, 1.0, 3.0, 9.0], torch.complex64, (5.0, 1.0, 3.0, None)),
     ([5.0, -1.0, 3.0, 9.0], torch.int32, (5, -1, 3.0, 9.0)),
     ([5.0, -1.0, 3.0, 9.0], torch.float16, (5.0, -1.0, 3.0, 9.0))],
)  # fmt: skip
def test_results_of_a_device(values: list[float], dtype: torch.dtype, expected: Four) -> None:
    found = decode_results(values, dtype)
    assert found == expected and [type(v) for v in found] == [type(v) for v in expected]


def test_nothing_is_kept_of_a_tensor_in_host_memory() -> None:
    kept: list[Any] = []
    assert measure(torch.tensor([1.0, 3.0]), lambda *told: kept.append(told), "leaf") == (
        3,
        1,
        2,
        math.sqrt(10),
    )
    assert not kept


# -- the kernel itself -----------------------------------------------------------------------------------


def test_the_kernel_is_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    class Marked:
        measure = staticmethod(lambda address, count, code: (address, count, code, None))

    monkeypatch.setattr(statistics, "_tally", Marked)
    tensor = torch.ones(3, 2, dtype=torch.int16)
    assert measure(tensor) == (tensor.data_ptr(), 6, 6, None)
    assert measure(tensor.t()) == (tensor.data_ptr(), 6, 6, None)  # dense: no copy
    assert measure(tensor[:, 0])[0] != tensor.data_ptr()


@every(
    "arguments, error",
    [((0, 4, 0), ValueError), ((None, 0, 0), ValueError), ((None, -1, 0), ValueError), ((None, 4, 10), ValueError),
     ((None, 4, -1), ValueError), ((None, 4, 2**31), ValueError), ((), TypeError), ((None, 4), TypeError),
     ((None, 4, 0, 0), TypeError), (("x", 4, 0), TypeError), ((None, "x", 0), TypeError),
     ((None, 4, "x"), TypeError), ((None, 4.0, 0), TypeError), ((None, 4, None), TypeError),
     ((2**70, 4, 0), OverflowError), ((None, 2**70, 0), OverflowError), ((None, 4, 2**70), OverflowError)],
    ids=repr,
)  # fmt: skip
def test_the_kernel_refuses(arguments: tuple[Any, ...], error: type[Exception]) -> None:
    """None stands for the address of four numbers."""
    tensor = torch.ones(4)
    with pytest.raises(error):
        statistics._tally.measure(*(tensor.data_ptr() if a is None and not i else a for i, a in enumerate(arguments)))


def test_the_kernel_takes_no_keywords() -> None:
    with pytest.raises(TypeError):
        statistics._tally.measure(address=1, count=1, code=0)  # type: ignore[call-arg]
