"""Tensors made up from what was recorded of them (pre-check guide 4.2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from probe_precheck.rebuild import Unbuildable
from probe_pytorch.precheck.random_tensors import create_generator, draw_tensor
from support.cases import every
from support.runs.prechecked import SKIP, Prechecked, call, leaf, written
from support.runs.recorded import forward
from support.sampling import examples

inf, nan = math.inf, math.nan
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
FLOAT8 = [
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
]
UNSIGNED = [getattr(torch, name) for name in ("uint16", "uint32", "uint64") if hasattr(torch, name)]
"""Since torch 2.3."""


def made(
    dtype: torch.dtype, shape: tuple[int, ...], low: Any, high: Any, place: str = "a", **more: Any
) -> torch.Tensor:
    """A tensor of the recorded range; ``more`` are further fields of its description."""
    fields = {"Min": low, "Max": high, **more}
    return draw_tensor(fields, dtype, shape, create_generator(1, place))


def numbers(tensor: torch.Tensor) -> list[float]:
    found: list[float] = tensor.to(torch.float64).flatten().tolist()
    return found


# floating-point


@every("dtype", [*FLOATS, *FLOAT8])
@every("shape", [(2,), (7,), (3, 5), (2, 3, 4), (1, 1, 3)])
def test_dtype_shape_range_and_ends(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """The first element is Min, the last Max, and none lies outside; -1.5 and 0.25 are exact in all dtypes."""
    tensor = made(dtype, shape, -1.5, 0.25)
    values = numbers(tensor)
    assert (tensor.dtype, tensor.shape) == (dtype, shape)
    assert (values[0], values[-1]) == (-1.5, 0.25)
    assert all(-1.5 <= value <= 0.25 for value in values)


@pytest.mark.parametrize("dtype", FLOATS)
def test_it_is_uniform(dtype: torch.dtype) -> None:
    """Mean and variance of 40 000 draws of U(2, 6): 4 and 16/12, to five standard errors."""
    values = np.array(numbers(made(dtype, (200, 200), 2.0, 6.0)))
    assert abs(values.mean() - 4) < 5 * math.sqrt(16 / 12 / values.size)
    assert values.var() == pytest.approx(16 / 12, rel=0.03)
    assert len(set(values.tolist())) > 100


@settings(max_examples=examples(150), deadline=None)
@given(
    st.sampled_from(FLOATS),
    st.floats(-1.0, 1.0, width=16),
    st.floats(-1.0, 1.0, width=16),
    st.lists(st.integers(0, 4), max_size=4),
    st.integers(0, 1000),
)
def test_any_range(dtype: torch.dtype, one: float, other: float, shape: list[int], place: int) -> None:
    """Within the recorded range in every dtype that holds its ends, from 0-d to empty."""
    low, high = sorted(float(torch.tensor(value, dtype=torch.bfloat16).double()) for value in (one, other))
    if dtype is torch.float16:
        low, high = (float(np.float16(value)) for value in (low, high))
    values = numbers(made(dtype, tuple(shape), low, high, str(place)))
    assert len(values) == math.prod(shape)
    assert all(low <= value <= high for value in values)
    if len(values) > 1:
        assert (values[0], values[-1]) == (low, high)


@every("dtype", [*FLOATS, *FLOAT8, *INTEGERS])
def test_one_element_and_0d(dtype: torch.dtype) -> None:
    """A single element is both ends: they are equal."""
    for shape in ((), (1,), (1, 1)):
        assert numbers(made(dtype, shape, 3, 3)) == [3.0]


@every("dtype", [*FLOATS, *FLOAT8, *INTEGERS, torch.bool, torch.complex64, *UNSIGNED])
def test_empty(dtype: torch.dtype) -> None:
    """Nothing to draw: any dtype, and no range needed."""
    tensor = draw_tensor({}, dtype, (3, 0, 2), create_generator(1, "a"))
    assert (tensor.shape, tensor.dtype) == ((3, 0, 2), dtype)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_whole_range_of_a_dtype(dtype: torch.dtype) -> None:
    info = torch.finfo(dtype)
    values = numbers(made(dtype, (50,), info.min, info.max))
    assert (values[0], values[-1]) == (info.min, info.max)
    assert all(map(math.isfinite, values))
    assert len({math.copysign(1, value) for value in values}) == 2


@pytest.mark.parametrize("dtype", FLOATS)
def test_subnormal_ranges(dtype: torch.dtype) -> None:
    tiny = torch.finfo(dtype).smallest_normal
    values = numbers(made(dtype, (5,), 0.0, tiny))
    assert (values[0], values[-1]) == (0.0, tiny)
    assert all(0 <= value <= tiny for value in values)


# inf and nan


@pytest.mark.parametrize("dtype", FLOATS)
def test_nan_among_numbers(dtype: torch.dtype) -> None:
    """More than two elements: Min, nan, …, Max."""
    values = numbers(made(dtype, (2, 3), nan, nan, Min_except_inf_nan=-2.0, Max_except_inf_nan=4.0))
    assert (values[0], values[-1]) == (-2.0, 4.0)
    assert math.isnan(values[1])
    assert all(-2 <= value <= 4 for value in values[2:])


def test_nan_in_two_elements() -> None:
    values = numbers(made(torch.float32, (2,), nan, nan, Min_except_inf_nan=3.0, Max_except_inf_nan=3.0))
    assert math.isnan(values[0])
    assert values[1] == 3.0


@pytest.mark.parametrize("shape", [(), (1,), (2,), (3, 3)])
@pytest.mark.parametrize("clean", [{}, {"Min_except_inf_nan": nan, "Max_except_inf_nan": nan}])
def test_all_nan(shape: tuple[int, ...], clean: dict[str, float]) -> None:
    assert all(map(math.isnan, numbers(made(torch.float32, shape, nan, nan, **clean))))


@pytest.mark.parametrize("names", ["except", "origin"])
def test_inf_at_either_end(names: str) -> None:
    """In the way of today's recorders and in that of the oldest, which kept the cleaned values in Max and Min."""
    if names == "except":
        fields = {"Max": inf, "Min": -inf, "Max_except_inf_nan": 5.0, "Min_except_inf_nan": -1.0}
    else:
        fields = {"Max": 5.0, "Min": -1.0, "Max_origin": inf, "Min_origin": -inf}
    values = numbers(draw_tensor(fields, torch.float32, (8,), create_generator(1, "a")))
    assert (values[0], values[-1]) == (-inf, inf)
    assert all(-1 <= value <= 5 for value in values[1:-1])


@pytest.mark.parametrize("high", [inf, -inf])
@pytest.mark.parametrize("clean", [False, True])
def test_all_of_one_infinity(high: float, clean: bool) -> None:
    more = {"Max_except_inf_nan": high, "Min_except_inf_nan": high} if clean else {}
    assert numbers(made(torch.float16, (2, 2), high, high, **more)) == [high] * 4


def test_infinite_ends_without_cleaned_values() -> None:
    """The range ends at the largest number of the dtype, but for the end itself."""
    values = numbers(made(torch.float16, (100,), -1.0, inf))
    assert (values[0], values[-1]) == (-1.0, inf)
    assert all(-1 <= value <= 65504 for value in values[:-1])
    assert max(values[:-1]) > 1000


def test_infinities_of_both_signs_and_nothing_else() -> None:
    """Cleaned values that are infinite say that no element was finite: full of Max, Min at one end."""
    values = numbers(made(torch.float32, (6,), -inf, inf, Max_except_inf_nan=inf, Min_except_inf_nan=-inf))
    assert set(values) == {inf, -inf}


def test_cleaned_values_that_are_null_are_the_originals() -> None:
    values = numbers(made(torch.float32, (4,), 1.0, 2.0, Max_except_inf_nan=None, Min_except_inf_nan=None))
    assert (values[0], values[-1]) == (1.0, 2.0)


# integers and bool


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_at_their_limits(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values: list[int] = made(dtype, (30,), info.min, info.max).tolist()
    assert (values[0], values[-1]) == (info.min, info.max)
    assert len(set(values)) > 10


@settings(max_examples=examples(100), deadline=None)
@given(st.data(), st.sampled_from(INTEGERS))
def test_integers_of_any_range(data: st.DataObject, dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    low, high = sorted(data.draw(st.tuples(*[st.integers(info.min, info.max)] * 2)))
    assume(low < torch.iinfo(torch.int64).max)  # see the next test
    values: list[int] = made(dtype, (9,), low, high).tolist()
    assert (values[0], values[-1]) == (low, high)
    assert all(low <= value <= high for value in values)


def test_integers_that_are_all_the_largest_there_is() -> None:
    """Such as a sentinel for "no index"."""
    largest = torch.iinfo(torch.int64).max
    assert made(torch.int64, (3,), largest, largest).tolist() == [largest] * 3


def test_every_integer_of_the_range_is_drawn() -> None:
    """Max too, and not only at the end, where it is put."""
    assert set(made(torch.int32, (400,), -3, 3).tolist()[1:-1]) == {*range(-3, 4)}


def test_integers_recorded_as_floats() -> None:
    """Some recorders write ranges of integers in this way."""
    assert set(made(torch.int64, (100,), 0.0, 3.0).tolist()) == {0, 1, 2, 3}


@pytest.mark.parametrize(
    "high, low, drawn", [(True, True, {True}), (False, False, {False}), (True, False, {True, False})]
)
def test_bool(high: bool, low: bool, drawn: set[bool]) -> None:
    tensor = made(torch.bool, (64,), low, high)
    assert tensor.dtype is torch.bool
    assert set(tensor.tolist()) == drawn


# seeds


def test_it_is_reproducible_and_each_place_has_its_own() -> None:
    one, again, other = (made(torch.float32, (50,), 0.0, 1.0, place) for place in "aab")
    assert torch.equal(one, again)
    assert not torch.isclose(one[1:-1], other[1:-1]).any()


def test_the_seed_matters() -> None:
    fields = {"Min": 0.0, "Max": 1.0}
    one, other = (draw_tensor(fields, torch.float32, (9,), create_generator(seed, "a")) for seed in (1, 2))
    assert not torch.equal(one, other)


def test_the_global_generator_is_neither_used_nor_changed() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one = made(torch.float32, (9,), 0.0, 1.0)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(6)
    assert torch.equal(one, made(torch.float32, (9,), 0.0, 1.0))


def test_two_inputs_of_one_call_differ(tmp_path: Any) -> None:
    """Inputs of two calls differ; the same call gives the same, alone or after others."""
    x = leaf(torch.randn(4, 5))
    data = {f"Torch.add.{i}.forward": forward(x, x, output=[x]) for i in range(2)}

    def inputs(calls: Prechecked, name: str) -> list[torch.Tensor]:
        found: list[torch.Tensor] = calls[name].outcome.kept.arguments.positional
        return found

    both = written(tmp_path / "run", data)
    tensors = [*inputs(both, "Torch.add.0"), *inputs(both, "Torch.add.1")]
    for i, one in enumerate(tensors):
        for other in tensors[:i]:
            assert not torch.equal(one, other)
    alone = written(tmp_path / "run", data)
    for one, other in zip(inputs(alone, "Torch.add.1"), tensors[2:]):
        assert torch.equal(one, other)


# what cannot be made up


@pytest.mark.parametrize("fields", [{}, {"Max": 1.0}, {"Max": None, "Min": None}, {"Max": "1", "Min": 0}])
def test_without_a_range(fields: dict[str, Any]) -> None:
    with pytest.raises(Unbuildable, match="Max and Min of an input were not recorded"):
        draw_tensor(fields, torch.float32, (2,), create_generator(1, "a"))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, *UNSIGNED])
def test_dtypes_that_are_not_drawn(dtype: torch.dtype) -> None:
    with pytest.raises(Unbuildable, match=rf"{dtype} is not supported for random inputs.* SKIP\."):
        made(dtype, (2,), 0, 1)


@pytest.mark.parametrize("high", [inf, nan])
def test_integers_that_are_not_finite(high: float) -> None:
    with pytest.raises(Unbuildable, match="not finite"):
        made(torch.int64, (2,), 0, high)


@pytest.mark.parametrize(
    "dtype, low, high",
    [
        ("torch.bool", False, nan),
        ("torch.uint8", -4, 300),
        ("torch.int64", 0, 2.0**63),
        pytest.param("torch.float32", 0, 10**400, id="too-long"),
        ("torch.float32", "low", "high"),
        ("torch.int8", -inf, 3),
    ],
)
def test_misfitting_statistics_give_one_sentence(tmp_path: Any, dtype: str, low: Any, high: Any) -> None:
    """A row that says of the record what is wrong with it, or a tensor that makes do; never Python's own words."""
    calls = written(tmp_path / "run", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})
    bad = leaf(torch.ones(3), dtype=dtype, Min=low, Max=high)
    calls.calls["Torch.clone.0"] = call("Torch.clone.0", bad)
    found = calls["Torch.clone.0"]
    if found.result.forward is SKIP:
        assert found.text.endswith("SKIP.")
