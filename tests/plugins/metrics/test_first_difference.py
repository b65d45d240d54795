"""The policy of first differences on tensors, at its limits and against its formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from probe_metrics.first_difference import EQUAL_REASONS, FirstDifference
from probe_metrics.thresholds import load_thresholds
from support.cases import every
from support.measuring import PROPERTY, tensor_value
from support.references.first_difference import ROUNDED_AS, evidence, inf, nan, noise_of
from support.references.metric_reference import ANY, DTYPES, FLOATS, pairs, two_arrays

from probe_core.model import Level, Statistics, Verdict
from probe_core.testing import pair_of, pair_of_values

FLOAT_TYPES = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip
by_float = pytest.mark.parametrize("name", FLOAT_TYPES)


def judge(target: Any, golden: Any) -> Verdict:
    """The verdict on two tensors whose data are on record."""
    return FirstDifference().judge(pair_of(np.asarray(target), np.asarray(golden)), {})


# -- tensors -----------------------------------------------------------------------------------


@every("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_a_tensor_is_the_same_as_its_copy(dtype: Any) -> None:
    golden = pairs(dtype)[1]
    verdict = judge(golden.copy(), golden)
    assert (verdict.level, verdict.reasons, verdict.label) == (Level.PASS, EQUAL_REASONS, "agrees")
    assert verdict.drift is not None and verdict.drift.difference == 0


@every(
    "other",
    [
        np.array([1.0, -0.0, np.nan]),
        np.array([1.0, 5e-324, np.nan]),
        np.array([np.nextafter(1.0, 2.0), 0.0, np.nan]),
        np.array([1.0, 0.0, np.nan], np.float32),
    ],
)
def test_a_difference_in_one_bit_is_not_equal(other: Any) -> None:
    golden = np.array([1.0, 0.0, np.nan])
    assert judge(golden.copy(), golden).reasons == EQUAL_REASONS
    verdict = judge(other, golden)
    assert (verdict.level, verdict.reasons) == (Level.PASS, ())


@every("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_a_tensor_differs_from_another_one(dtype: Any) -> None:
    golden = pairs(dtype)[1]
    target = ~golden if golden.dtype.kind == "b" else np.roll(golden, 1)
    verdict = judge(target, golden)
    assert verdict.level is Level.ERROR
    assert "off by" in evidence(verdict)


@by_float
@pytest.mark.parametrize(
    ("ulps", "level"), [(-1, Level.PASS), (0, Level.PASS), (1, Level.ERROR)], ids=["below", "at", "above"]
)
@pytest.mark.parametrize("shape", [(), (1,), (4,), (4, 16), (64, 64)], ids=str)
def test_at_the_threshold(name: str, ulps: int, level: Level, shape: tuple[int, ...]) -> None:
    """Exactly what rounding explains is the same; the next number of the dtype differs."""
    dtype = np.dtype(FLOAT_TYPES[name])
    eps = noise_of(name) / load_thresholds("drift")["noise"][ROUNDED_AS.get(name, name)]
    golden = np.ones(shape, dtype)
    target = np.full(shape, 1 + noise_of(name) + ulps * eps).astype(dtype)
    assert complex(target.flat[0]) == 1 + noise_of(name) + ulps * eps, "the dtype holds this number"
    verdict = judge(target, golden)
    assert verdict.level is level
    assert verdict.drift is not None
    assert (verdict.drift.scale, verdict.drift.noise) == (1.0, noise_of(name))
    assert verdict.drift.difference == noise_of(name) + ulps * eps


@by_float
def test_the_golden_is_the_scale(name: str) -> None:
    """2 against 1 differs by all of it, 1 against 2 by half."""
    one, two = (np.full(4, number, FLOAT_TYPES[name]) for number in (1, 2))
    assert judge(two, one).drift.relative_to(1.0) == 1.0  # type: ignore[union-attr]
    there, back = judge(two, one), judge(one, two)
    unit = "times the golden's root mean square"
    assert f"off by 1 {unit}" in evidence(there) and f"off by 0.5 {unit}" in evidence(back)


@pytest.mark.parametrize(
    ("ours", "theirs", "coarser"),
    [
        ("bfloat16", "float32", "bfloat16"),
        ("float32", "bfloat16", "bfloat16"),
        ("float16", "float32", "float16"),
        ("float32", "float64", "float32"),
        ("float16", "bfloat16", "bfloat16"),
        ("complex64", "complex128", "complex64"),
        ("float32", "complex128", "float32"),
    ],
)
def test_the_coarser_dtype_says_what_rounding_explains(ours: str, theirs: str, coarser: str) -> None:
    golden = np.ones(4, FLOAT_TYPES[theirs])
    for share, level in ((1.0, Level.PASS), (2.0, Level.ERROR)):
        target = np.full(4, 1 + share * noise_of(coarser)).astype(FLOAT_TYPES[ours])
        verdict = judge(target, golden)
        assert verdict.level is level
        assert verdict.drift is not None and verdict.drift.noise == noise_of(coarser)


@every("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_])
@every("size", [1, 7, 10_000])
def test_whole_numbers_and_truth_values_must_be_equal(dtype: Any, size: int) -> None:
    golden = (np.arange(size) % 2 if dtype is np.bool_ else np.arange(size) % 100).astype(dtype)
    target = golden.copy()
    assert judge(target, golden).level is Level.PASS
    target[-1] ^= True if dtype is np.bool_ else 1
    verdict = judge(target, golden)
    assert verdict.level is Level.ERROR
    assert verdict.drift is not None and verdict.drift.noise == 0
    assert "nothing is rounded" in evidence(verdict)


@pytest.mark.parametrize(("dtype", "number"), [(np.int64, 2**53), (np.int64, -(2**60)), (np.uint64, 2**64 - 2)])
def test_large_whole_numbers_must_be_equal(dtype: Any, number: int) -> None:
    golden = np.array([number, 1, 2], dtype)
    assert judge(golden + np.array([1, 0, 0], dtype), golden).level is Level.ERROR


@every("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64])
@every("special", [nan, inf, -inf], ids=str)
def test_nan_and_inf_must_stand_at_the_same_places(dtype: Any, special: float) -> None:
    golden = np.array([1, 2, 3, 4], dtype)
    there, elsewhere = golden.copy(), golden.copy()
    there[1] = elsewhere[2] = special
    assert judge(there, there.copy()).level is Level.PASS
    for target, other in ((there, golden), (golden, there), (there, elsewhere)):
        verdict = judge(target, other)
        assert (verdict.level, verdict.drift) == (Level.ERROR, None)
        assert evidence(verdict) == "nan or inf at different positions"


@pytest.mark.parametrize("pair", [(nan, inf), (inf, -inf), (-inf, nan)], ids=str)
def test_nan_and_both_infinities_are_not_alike(pair: tuple[float, float]) -> None:
    assert judge(np.array([1.0, pair[0]]), np.array([1.0, pair[1]])).level is Level.ERROR


@pytest.mark.parametrize("special", [nan, inf, -inf], ids=str)
def test_the_finite_rest_is_judged(special: float) -> None:
    golden = np.array([special, 1.0, 2.0, special])
    assert judge(np.array([special, 1.0, 2.0, special]), golden).level is Level.PASS
    assert judge(np.array([special, 1.0, 2.1, special]), golden).level is Level.ERROR
    nothing_finite = np.full(5, special)
    assert judge(nothing_finite, nothing_finite.copy()).level is Level.PASS


@by_float
def test_zeros_of_both_signs_are_the_same(name: str) -> None:
    zeros = np.zeros(6, FLOAT_TYPES[name])
    assert judge(-zeros, zeros).level is judge(zeros, -zeros).level is Level.PASS


@by_float
def test_anything_differs_from_nothing_but_zeros(name: str) -> None:
    zeros = np.zeros(4, FLOAT_TYPES[name])
    little = np.array([0, 0, 0, 1e-3], FLOAT_TYPES[name])
    assert judge(little, zeros).level is judge(zeros, little).level is Level.ERROR
    assert ", where the golden is zero" in evidence(judge(little, zeros))


@by_float
def test_denormals_are_numbers(name: str) -> None:
    dtype = np.dtype(FLOAT_TYPES[name])
    real = ROUNDED_AS.get(name, name)
    info = ml_dtypes.finfo(getattr(ml_dtypes, real, None) or np.dtype(real))
    least = np.full(4, info.smallest_subnormal, dtype)
    assert judge(least, least.copy()).level is Level.PASS
    assert judge((least * 9).astype(dtype), least).level is Level.ERROR
    assert judge(least, (least * 9).astype(dtype)).level is Level.ERROR


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_the_last_place_of_a_denormal_is_rounding(name: str) -> None:
    """Gradients of float16 lie there: next to 1e-7 there is nothing nearer than 6e-8."""
    dtype = np.dtype(FLOAT_TYPES[name])
    golden = np.full(16, 2 * float(np.finfo(dtype).smallest_subnormal), dtype)
    target = golden.copy()
    target[3] = np.nextafter(golden[3], dtype.type(1))
    assert judge(target, golden).level is Level.PASS


@pytest.mark.parametrize("size", [1e300, 1e-300, 1e150, 1e-150, 1e-310])
def test_squares_beyond_float64_are_judged_all_the_same(size: float) -> None:
    golden = np.array([1.0, -2.0, 3.0, 0.5]) * size
    assert judge(golden.copy(), golden).level is Level.PASS
    assert judge(golden * 1.05, golden).level is Level.ERROR


def test_the_drift_of_the_largest_numbers_is_finite() -> None:
    """A mask filled with the least number of float64 has a norm beyond float64, and a magnitude within."""
    golden = np.full((8, 8), np.finfo(np.float64).min)
    drift = judge(golden.copy(), golden).drift
    assert drift is not None and math.isfinite(drift.scale)
    assert judge(golden / 2, golden).level is Level.ERROR


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_float8_is_rounded(dtype: Any) -> None:
    golden = np.ones(4096, dtype)
    target = golden.copy()
    target[7] = 1 + float(ml_dtypes.finfo(dtype).eps)
    assert judge(target, golden).level is Level.PASS


def test_memory_layout_is_irrelevant() -> None:
    golden = np.arange(1, 25, dtype=np.float32).reshape(4, 6)
    for target in (golden.T.copy().T, np.asfortranarray(golden), golden.copy()):
        assert judge(target, golden).level is Level.PASS
    assert judge(np.asfortranarray(golden[::-1]), golden).level is Level.ERROR


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 4)], ids=str)
def test_a_tensor_without_elements_cannot_be_judged(shape: tuple[int, ...]) -> None:
    verdict = judge(np.empty(shape, np.float32), np.empty(shape, np.float32))
    assert (verdict.level, evidence(verdict)) == (Level.SKIP, "no elements")


def test_another_shape_differs() -> None:
    for target, golden in (((3, 4), (4, 3)), ((2,), (2, 1)), ((), (1,)), ((0,), (2,)), ((2,), (0,))):
        verdict = judge(np.ones(target), np.ones(golden))
        assert (verdict.level, verdict.drift) == (Level.ERROR, None)
        assert evidence(verdict) == f"shape {list(target)} against {list(golden)}"


# -- tensors, against the formula written down once more -------------------------------------------


def by_formula(target: Any, golden: Any, noise: float, floor: float) -> Level | None:
    """The verdict by the definition, in numpy's float64 of scaled numbers; None near a limit."""
    wide = np.complex128 if target.dtype.kind == "c" else np.float64
    ours, theirs = target.astype(wide).ravel(), golden.astype(wide).ravel()
    finite = np.isfinite(ours) & np.isfinite(theirs)
    same = ours[~finite] == theirs[~finite]
    same |= np.isnan(ours[~finite]) & np.isnan(theirs[~finite])
    if not same.all():
        return Level.ERROR
    ours, theirs = ours[finite], theirs[finite]
    if not (ours != theirs).any():
        return Level.PASS
    largest = np.abs(ours - theirs).max()
    root = largest * float(np.linalg.norm(part(ours - theirs, largest))) / np.sqrt(target.size)
    if floor / 2 <= root <= 2 * floor:
        return None
    if root < floor:
        return Level.PASS
    if not theirs.any():
        return Level.ERROR
    size = np.abs(theirs).max()
    apart, scale = (float(np.linalg.norm(part(side, size))) for side in (ours - theirs, theirs))
    if abs(apart / scale - noise) <= 1e-9 * noise:
        return None
    return Level.ERROR if apart / scale > noise else Level.PASS


def part(side: Any, size: float) -> Any:
    """A side over ``size``, in reals, for numpy loses denormals in complex divisions."""
    return np.ascontiguousarray(side).view(np.float64) / size


def assert_as_by_formula(target: Any, golden: Any, name: str) -> None:
    finfo: Any = ml_dtypes.finfo(FLOAT_TYPES[ROUNDED_AS.get(name, name)])
    floor = 4 * float(finfo.smallest_subnormal)
    expected = by_formula(target, golden, noise_of(name), floor)
    if expected is not None:
        assert judge(target, golden).level is expected


def near(golden: Any, share: float, name: str) -> Any:
    """A target about ``share`` of what rounding explains away from the golden."""
    with np.errstate(all="ignore"):
        return (golden.astype(np.float64) * (1 + share * noise_of(name))).astype(golden.dtype)


def may_mask(sides: Sequence[Any]) -> bool:
    """Return True for elements that may be those of a mask, which test_masked.py judges."""
    numbers = [np.asarray(side, np.float64) for side in sides]
    return any(bool(np.any(side <= -1e4)) for side in numbers)


@PROPERTY
@given(two_arrays(FLOATS), st.one_of(st.none(), st.floats(-3, 3)))
def test_float64_by_the_formula(arrays: tuple[Any, Any], share: float | None) -> None:
    target, golden = arrays
    assume(not may_mask(arrays))
    assert_as_by_formula(target if share is None else near(golden, share, "float64"), golden, "float64")


@PROPERTY
@given(two_arrays(ANY, np.float32), st.one_of(st.none(), st.floats(-3, 3)))
def test_float32_by_the_formula(arrays: tuple[Any, Any], share: float | None) -> None:
    """With nan, inf, zeros of both signs and denormals among the elements."""
    target, golden = arrays
    assume(not may_mask(arrays))
    assert_as_by_formula(target if share is None else near(golden, share, "float32"), golden, "float32")


@PROPERTY
@given(st.data(), st.sampled_from(["float16", "bfloat16"]), st.one_of(st.none(), st.floats(-3, 3)))
def test_half_precision_by_the_formula(data: st.DataObject, name: str, share: float | None) -> None:
    with np.errstate(all="ignore"):
        target, golden = (
            side.astype(FLOAT_TYPES[name]) for side in data.draw(two_arrays(st.floats(width=16), np.float32))
        )
    assume(not may_mask((target, golden)))
    assert_as_by_formula(target if share is None else near(golden, share, name), golden, name)


def test_complex_numbers_a_denormal_apart() -> None:
    golden = np.array([1j, 2j])
    drift = judge(golden + 3e-323, golden).drift
    assert drift is not None and not math.isnan(drift.difference)


NORMAL = st.floats(-1e9, 1e9).map(lambda number: number if abs(number) > 1e-100 else 0.0)


@PROPERTY
@given(two_arrays(NORMAL), two_arrays(NORMAL), st.floats(-3, 3).map(lambda share: round(share, 9)))
def test_complex_by_the_formula(first: Any, second: Any, share: float) -> None:
    """The modulus of the complex difference counts."""
    size = min(first[1].size, second[1].size)
    golden = first[1].ravel()[:size] + 1j * second[1].ravel()[:size]
    other = first[0].ravel()[:size] + 1j * second[0].ravel()[:size]
    assert_as_by_formula(other, golden, "complex128")
    assert_as_by_formula(golden * (1 + share * noise_of("complex128") * 1j), golden, "complex128")


@PROPERTY
@given(two_arrays(st.integers(-100, 100), np.int64))
def test_whole_numbers_by_the_formula(arrays: tuple[Any, Any]) -> None:
    target, golden = (side.astype(np.int64) for side in arrays)
    expected = Level.PASS if np.array_equal(target, golden) else Level.ERROR
    assert judge(target, golden).level is expected


@every("largest, label", [(5.0, "differs"), (1.0, "agrees")])
def test_statistics_of_booleans_against_numbers(largest: float, label: str) -> None:
    target = tensor_value(Statistics(largest, 0.0, 0.5, None))
    golden = tensor_value(Statistics(True, False, None, None), dtype="torch.bool")
    assert FirstDifference().judge(pair_of_values(target, golden), {}).label == label
