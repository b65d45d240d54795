"""The judgement behind the first difference: whether two values differ beyond what rounding explains."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_metrics.first_difference import FirstDifference
from probe_metrics.thresholds import thresholds
from support.measuring import ALL_ONE, PROPERTY, above, below, scalar_value, tensor_value
from support.references.metric_reference import ANY, DTYPES, FLOATS, pairs, two_arrays

from probe_core.model import Kind, Level, Mode, Pair, Statistics, Value, Verdict
from probe_core.model.measure import OpenPair
from probe_core.testing import pair_of, pair_of_values

nan, inf = math.nan, math.inf
NOISE = {
    name: count * float(ml_dtypes.finfo(getattr(ml_dtypes, name, None) or np.dtype(name)).eps)
    for name, count in thresholds("drift")["noise"].items()
}
FLOAT_TYPES = {
    "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64,
    "complex64": np.complex64, "complex128": np.complex128,
}  # fmt: skip
ROUNDED_AS = {"complex64": "float32", "complex128": "float64"}
NULL = Value(Kind.NULL, "None", "None")

by_float = pytest.mark.parametrize("name", FLOAT_TYPES)


def judge(target: Any, golden: Any) -> Verdict:
    """The verdict on two tensors whose data are on record."""
    return FirstDifference().judge(pair_of(np.asarray(target), np.asarray(golden)), {})


def judge_values(target: Value | None, golden: Value | None, mode: Mode = Mode.STATISTICS) -> Verdict:
    """The verdict on two recorded values without data."""
    return FirstDifference().judge(pair_of_values(target, golden, mode), {})


def evidence(verdict: Verdict) -> str:
    (reason,) = verdict.reasons
    assert reason.code == "evidence"
    return reason.detail


def noise_of(name: str) -> float:
    return NOISE[ROUNDED_AS.get(name, name)]


# -- tensors -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_a_tensor_is_the_same_as_its_copy(dtype: Any) -> None:
    golden = pairs(dtype)[1]
    verdict = judge(golden.copy(), golden)
    assert (verdict.level, verdict.reasons, verdict.label) == (Level.PASS, (), "")
    assert verdict.drift is not None and verdict.drift.difference == 0


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
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
    eps = noise_of(name) / thresholds("drift")["noise"][ROUNDED_AS.get(name, name)]
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
    unit = "of the golden's root mean square"
    assert f"rms off by 1 {unit}" in evidence(there) and f"rms off by 0.5 {unit}" in evidence(back)


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


@pytest.mark.parametrize(
    "dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]
)
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_whole_numbers_and_truth_values_must_be_equal(dtype: Any, size: int) -> None:
    golden = (np.arange(size) % 2 if dtype is np.bool_ else np.arange(size) % 100).astype(dtype)
    target = golden.copy()
    assert judge(target, golden).level is Level.PASS
    target[-1] ^= True if dtype is np.bool_ else 1
    verdict = judge(target, golden)
    assert verdict.level is Level.ERROR
    assert verdict.drift is not None and verdict.drift.noise == 0
    assert "nothing is rounded" in evidence(verdict)


@pytest.mark.parametrize(
    ("dtype", "number"), [(np.int64, 2**53), (np.int64, -(2**60)), (np.uint64, 2**64 - 2)]
)
def test_large_whole_numbers_must_be_equal(dtype: Any, number: int) -> None:
    golden = np.array([number, 1, 2], dtype)
    assert judge(golden + np.array([1, 0, 0], dtype), golden).level is Level.ERROR


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, np.complex64])
@pytest.mark.parametrize("special", [nan, inf, -inf], ids=str)
def test_nan_and_inf_must_stand_at_the_same_places(dtype: Any, special: float) -> None:
    golden = np.array([1, 2, 3, 4], dtype)
    there, elsewhere = golden.copy(), golden.copy()
    there[1] = elsewhere[2] = special
    assert judge(there, there.copy()).level is Level.PASS
    for target, other in ((there, golden), (golden, there), (there, elsewhere)):
        verdict = judge(target, other)
        assert (verdict.level, verdict.drift) == (Level.ERROR, None)
        assert evidence(verdict) == "nan or inf stand at different places"


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
    assert "rms off by inf of" in evidence(judge(little, zeros))


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


def test_layout_does_not_matter() -> None:
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


@PROPERTY
@given(two_arrays(FLOATS), st.one_of(st.none(), st.floats(-3, 3)))
def test_float64_by_the_formula(arrays: tuple[Any, Any], share: float | None) -> None:
    target, golden = arrays
    assert_as_by_formula(target if share is None else near(golden, share, "float64"), golden, "float64")


@PROPERTY
@given(two_arrays(ANY, np.float32), st.one_of(st.none(), st.floats(-3, 3)))
def test_float32_by_the_formula(arrays: tuple[Any, Any], share: float | None) -> None:
    """With nan, inf, zeros of both signs and denormals among the elements."""
    target, golden = arrays
    assert_as_by_formula(target if share is None else near(golden, share, "float32"), golden, "float32")


@PROPERTY
@given(st.data(), st.sampled_from(["float16", "bfloat16"]), st.one_of(st.none(), st.floats(-3, 3)))
def test_half_precision_by_the_formula(data: st.DataObject, name: str, share: float | None) -> None:
    with np.errstate(all="ignore"):
        target, golden = (
            side.astype(FLOAT_TYPES[name]) for side in data.draw(two_arrays(st.floats(width=16), np.float32))
        )
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


# -- the best evidence --------------------------------------------------------------------------


class _Held:
    """A run that holds one tensor."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def tensor(self, value: Value) -> Any:
        return self._array


def of_a_recording(target: tuple[Any, Value], golden: tuple[Any, Value], mode: Mode = Mode.TENSOR) -> Verdict:
    """The verdict on two values with data, checksums and statistics that need not tell one story."""
    sides = pair_of_values(target[1], golden[1]).pair
    opened = OpenPair(Pair(*sides[:2]), mode, _Held(target[0]), _Held(golden[0]))
    return FirstDifference().judge(opened, {})


def test_data_before_checksums_before_statistics() -> None:
    ones, others = np.ones(2, np.float32), np.full(2, 1.5, np.float32)
    twice = Statistics(2.0, 2.0, 2.0, 2.0)
    first = tensor_value(ALL_ONE, checksum="aa")
    second = tensor_value(twice, checksum="bb")
    assert of_a_recording((ones, first), (ones, second)).level is Level.PASS
    assert of_a_recording((others, first), (ones, first)).level is Level.ERROR
    one_sum = tensor_value(twice, checksum="aa")
    assert judge_values(first, one_sum, Mode.MD5).level is Level.PASS
    verdict = judge_values(first, tensor_value(ALL_ONE, checksum="bb"), Mode.MD5)
    assert (verdict.level, evidence(verdict)) == (Level.ERROR, "checksum aa against bb")
    assert judge_values(tensor_value(ALL_ONE), tensor_value(twice)).level is Level.ERROR


def test_statistics_where_a_tensor_file_is_missing() -> None:
    alone = tensor_value(ALL_ONE, data_name=None)
    other = tensor_value(Statistics(2.0, 2.0, 2.0, 2.0), data_name=None)
    data = np.ones(2, np.float32)
    assert of_a_recording((data, alone), (data, other)).level is Level.ERROR
    assert of_a_recording((data, alone), (data, tensor_value(ALL_ONE))).level is Level.PASS


def test_checksums_of_two_dtypes_say_nothing() -> None:
    ours = tensor_value(Statistics(), checksum="aa", dtype="torch.bfloat16")
    theirs = tensor_value(Statistics(), checksum="bb")
    verdict = judge_values(ours, theirs, Mode.MD5)
    assert verdict.level is Level.SKIP
    assert "torch.bfloat16 and torch.float32" in evidence(verdict)


def test_statistics_where_checksums_of_two_dtypes_say_nothing() -> None:
    ours = tensor_value(Statistics(9.0, 9.0, 9.0, 9.0), checksum="aa", dtype="torch.bfloat16")
    assert judge_values(ours, tensor_value(ALL_ONE, checksum="bb"), Mode.MD5).level is Level.ERROR


def test_a_checksum_on_one_side_alone_leaves_the_statistics() -> None:
    ours, theirs = tensor_value(ALL_ONE, checksum="aa"), tensor_value(ALL_ONE)
    assert judge_values(ours, theirs).level is judge_values(theirs, ours).level is Level.PASS


def test_without_partner_nothing_can_be_said() -> None:
    for mode in Mode:
        for target, golden in ((tensor_value(), None), (None, tensor_value())):
            verdict = judge_values(target, golden, mode)
            assert (verdict.level, evidence(verdict)) == (Level.SKIP, "no partner")


def test_null_agrees_with_null_only() -> None:
    for mode in Mode:
        assert judge_values(NULL, NULL, mode).level is Level.PASS
        for other in (tensor_value(checksum="a"), scalar_value(1)):
            assert judge_values(NULL, other, mode).level is Level.ERROR
            assert judge_values(other, NULL, mode).level is Level.ERROR


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("target", "golden", "differ"),
    [
        (1.05, 1.0, True),
        (1.0, 1.0, False),
        (above(1.0), 1.0, True),
        (-0.0, 0.0, False),
        (nan, nan, False),
        (nan, 1.0, True),
        (inf, -inf, True),
        (1, 2, True),
        (2**70, 2**70 + 1, True),
        ("sum", "mean", True),
        ("sum", "sum", False),
        ("True", "False", True),
    ],
)  # fmt: skip
def test_scalars_differ_by_value(target: Any, golden: Any, differ: bool, mode: Mode) -> None:
    verdict = judge_values(scalar_value(target, "x"), scalar_value(golden, "x"), mode)
    assert verdict.level is (Level.ERROR if differ else Level.PASS)
    assert not differ or "against" in evidence(verdict)


def test_sizes_and_slices_differ_by_their_text() -> None:
    def size(text: str, checksum: str) -> Value:
        return Value(Kind.SCALAR, "slice", text, None, Statistics(), checksum)

    assert judge_values(size("(3,)", "aa"), size("(3,)", "aa")).level is Level.PASS
    assert judge_values(size("(3,)", "aa"), size("(3,)", "bb")).level is Level.ERROR
    assert judge_values(size("(3,)", "aa"), size("(2,)", "aa")).level is Level.ERROR


# -- statistics -------------------------------------------------------------------------------------


def of_one(target: Any, golden: Any, place: str, dtype: str = "torch.float32") -> Verdict:
    """One statistic is as given; the others say a tensor of magnitude 1."""
    plain = {"max": 1.0, "min": -1.0, "mean": 0.5, "norm": 1.0}
    first, second = (
        tensor_value(Statistics(**{**plain, place: value}), dtype=dtype) for value in (target, golden)
    )
    return judge_values(first, second)


@pytest.mark.parametrize("place", ["max", "min", "mean", "norm"])
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_statistics_at_the_threshold(place: str, name: str) -> None:
    sign = -1 if place == "min" else 1
    noise = noise_of(name)
    for apart, level in ((noise, Level.PASS), (noise * 0.75, Level.PASS), (noise * 1.25, Level.ERROR)):
        verdict = of_one(sign * (1 + apart), sign * 1.0, place, f"torch.{name}")
        assert verdict.level is level
        assert level is Level.PASS or evidence(verdict).startswith(f"{place} ")
    assert of_one(1 - noise, 1.0, "norm", f"torch.{name}").level is Level.PASS


@pytest.mark.parametrize("spelt", ["Float32", "FLOAT32", "mindspore.Float32", "torch.float32", "float32"])
def test_dtypes_are_known_however_they_are_spelt(spelt: str) -> None:
    verdict = of_one(1 + noise_of("float32"), 1.0, "max", spelt)
    assert verdict.level is Level.PASS
    assert verdict.drift is not None and verdict.drift.noise == noise_of("float32")


def test_a_mean_near_zero_is_held_against_the_magnitude() -> None:
    """300 % of nearly nothing is rounding."""
    assert of_one(3e-7, 1e-7, "mean").level is Level.PASS
    assert of_one(3e-4, 1e-4, "mean").level is Level.ERROR


def test_a_norm_is_held_against_itself() -> None:
    """The norm of many numbers is much larger than each of them."""
    golden = tensor_value(Statistics(1.0, -1.0, 0.0, 1000.0))
    for share, level in ((0.5, Level.PASS), (2.0, Level.ERROR)):
        norm = 1000.0 * (1 + share * noise_of("float32"))
        assert judge_values(tensor_value(Statistics(1.0, -1.0, 0.0, norm)), golden).level is level


@pytest.mark.parametrize("place", ["max", "min", "mean", "norm"])
@pytest.mark.parametrize(
    ("target", "golden", "differ"),
    [(nan, nan, False), (inf, inf, False), (-inf, -inf, False), (nan, 1.0, True), (1.0, nan, True),
     (inf, 1.0, True), (inf, -inf, True), (nan, inf, True), (10**400, inf, False)],
)  # fmt: skip
def test_nan_and_inf_among_statistics(target: Any, golden: Any, differ: bool, place: str) -> None:
    verdict = of_one(target, golden, place)
    assert verdict.level is (Level.ERROR if differ else Level.PASS)
    assert not differ or verdict.drift is None


def test_statistics_on_one_side_alone_are_left_out() -> None:
    golden = tensor_value(Statistics(1.0, -1.0, None, None))
    assert judge_values(tensor_value(Statistics(1.0, -1.0, 0.25, 9.0)), golden).level is Level.PASS
    assert judge_values(tensor_value(Statistics(1.5, -1.0, 0.25, 9.0)), golden).level is Level.ERROR


def test_nothing_on_record_cannot_be_judged() -> None:
    nothing = tensor_value(Statistics())
    assert judge_values(nothing, nothing).level is Level.SKIP
    assert judge_values(nothing, tensor_value(ALL_ONE)).level is Level.SKIP


def test_nothing_on_record_of_the_golden_cannot_be_judged() -> None:
    assert judge_values(tensor_value(ALL_ONE), tensor_value(Statistics())).level is Level.SKIP


@pytest.mark.parametrize("place", ["max", "min"])
def test_truth_values_among_statistics(place: str) -> None:
    plain = {"max": True, "min": False}
    golden = tensor_value(Statistics(**plain), dtype="torch.bool")
    assert judge_values(golden, golden).level is Level.PASS
    other = tensor_value(Statistics(**{**plain, place: not plain[place]}), dtype="torch.bool")
    assert judge_values(other, golden).level is judge_values(golden, other).level is Level.ERROR


@pytest.mark.parametrize("dtype", ["torch.int64", "torch.uint8", "Int32"])
def test_statistics_of_whole_numbers_must_be_equal(dtype: str) -> None:
    golden = tensor_value(Statistics(1000, 0, 3.5, 9.5), dtype=dtype)
    assert judge_values(golden, golden).level is Level.PASS
    for change in ({"max": 1001}, {"min": 1}, {"mean": 3.6}, {"norm": 9.6}):
        other = tensor_value(golden.statistics._replace(**change), dtype=dtype)
        assert judge_values(other, golden).level is Level.ERROR, change


@pytest.mark.parametrize("place", ["mean", "norm"])
def test_mean_and_norm_of_whole_numbers_are_rounded(place: str) -> None:
    """Two devices add in two orders; the token ids are the same."""
    golden = tensor_value(Statistics(50_000, 0, 24_871.125, 1_811_713.25), dtype="torch.int64")
    number = getattr(golden.statistics, place)
    other = golden.statistics._replace(**{place: float(np.nextafter(np.float32(number), np.float32(inf)))})
    assert judge_values(tensor_value(other, dtype="torch.int64"), golden).level is Level.PASS


def test_statistics_of_large_whole_numbers_must_be_equal() -> None:
    ours, theirs = (tensor_value(Statistics(number, 0), dtype="torch.int64") for number in (2**53 + 1, 2**53))
    assert judge_values(ours, theirs).level is Level.ERROR


def test_zeros_against_zeros() -> None:
    zeros = tensor_value(Statistics(0.0, 0.0, 0.0, 0.0))
    assert judge_values(tensor_value(Statistics(-0.0, -0.0, 0.0, 0.0)), zeros).level is Level.PASS
    little = tensor_value(Statistics(1e-30, 0.0, 1e-31, 1e-30))
    assert judge_values(little, zeros).level is Level.ERROR


@PROPERTY
@given(st.lists(st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3)),
                min_size=8, max_size=8))  # fmt: skip
def test_whatever_was_recorded_gets_a_verdict(recorded: list[Any]) -> None:
    """No statistics break it, what equals itself never differs, and what is said is finite or infinite."""
    first, second = (tensor_value(Statistics(*recorded[start : start + 4])) for start in (0, 4))
    assert judge_values(first, first).level is not Level.ERROR
    verdict = judge_values(first, second)
    assert verdict.level in (Level.PASS, Level.ERROR, Level.SKIP)
    assert bool(verdict.reasons) is (verdict.level is not Level.PASS)
    if verdict.drift is not None:
        assert not any(map(math.isnan, verdict.drift))
        assert math.isfinite(verdict.drift.scale)


@PROPERTY
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.floats(0.001, 1))
def test_a_scaled_tensor_differs_by_its_statistics(numbers: list[float], share: float) -> None:
    """What all four statistics say with one voice is never taken for rounding, nor rounding for it."""
    array = np.array(numbers) + 1e-3
    golden, target = (
        tensor_value(Statistics(*map(float, (a.max(), a.min(), a.mean(), np.linalg.norm(a)))))
        for a in (array, array * (1 + share))
    )
    assert judge_values(target, golden).level is (Level.ERROR if array.any() else Level.PASS)
    last = [below(float(item)) for item in golden.statistics]  # type: ignore[arg-type]
    assert judge_values(tensor_value(Statistics(*last)), golden).level is Level.PASS
