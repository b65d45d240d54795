"""Every number that the pre-check's standards and its first stage measure, against plain arithmetic."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from probe_metrics.standards.absolute_threshold import AbsoluteThreshold
from probe_metrics.standards.accumulative_error import AccumulativeError
from probe_metrics.standards.benchmark_ratio import BenchmarkRatio
from probe_metrics.standards.binary_consistency import BinaryConsistency
from probe_metrics.standards.dual_thousandth import DualThousandth
from probe_metrics.standards.first_stage import FirstStage
from probe_metrics.standards.thresholds import load_thresholds
from probe_metrics.standards.ulp import UlpError
from probe_precheck import model
from probe_precheck.tables import NUMBERS
from pytest import approx
from support.cases import every
from support.references.precheck_reference import ABSOLUTE, ACCUMULATIVE, LARGEST, SMALL, Reference, unequal
from support.sampling import examples

from probe_core.errors import UserError
from probe_core.model.measure import BLOCK_ELEMENTS

Array = np.ndarray[Any, Any]
inf, nan = math.inf, math.nan

STANDARDS: dict[str, Any] = {
    "absolute": AbsoluteThreshold(),
    "benchmark": BenchmarkRatio(),
    "ulp": UlpError(),
    "dual": DualThousandth(),
    "accumulative": AccumulativeError(),
    "binary": BinaryConsistency(),
}
RELEASES = ("seed", "8.3")
KINDS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.float32}
FAST = settings(max_examples=examples(120), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def output(device: Array, kind: str, bench: Array, **more: Any) -> model.Output:
    name = f"torch.{bench.dtype.name}"
    return model.Output("api", model.Array(bench, name), model.Array(device, f"torch.{kind}"), **more)


def measured(name: str, device: Array, kind: str, bench: Array, release: str = "seed") -> Mapping[str, float]:
    """Return what a standard measures, with numpy's warnings raised as errors."""
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        found: Mapping[str, float] = STANDARDS[name].measure(output(device, kind, bench), release)
    assert set(found) <= {column.key for column in NUMBERS}
    assert all(type(value) in (float, int) for value in found.values())
    return found


def expected(name: str, device: Array, kind: str, bench: Array, release: str = "seed") -> dict[str, float]:
    reference = Reference(device, kind, bench)
    if name == "binary":
        with np.errstate(all="ignore"):
            own = bench.astype(np.float32) if kind == "bfloat16" else bench
        return {"error_rate": unequal(device, own)}
    if name == "dual":
        return {"thousandth": reference.below(0.001)}
    if name == "ulp":
        return reference.ulp()
    if name == "accumulative":
        return reference.accumulative()
    return getattr(reference, name)(release)  # type: ignore[no-any-return]


def same(numbers: Mapping[str, float]) -> Any:
    return approx(dict(numbers), rel=1e-6, abs=0, nan_ok=True)


def to_kind(values: Array, kind: str) -> Array:
    """The values as a device of this dtype would hand them over."""
    with np.errstate(all="ignore"):
        if kind == "bfloat16":
            return np.asarray(values.astype(ml_dtypes.bfloat16).astype(np.float32))
        return np.asarray(values.astype(KINDS[kind]))


SPECIALS = [
    0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 5e-324, 1e-45, 1.1754943508222875e-38, 6e-8, 6.103515625e-05, 1e-9, 1e-6,
    1e-5, 1e-3, 0.0009765625, 65504.0, -65504.0, 65519.9, 65520.0, 70000.0, LARGEST["bfloat16"], 3.397e38,
    LARGEST["float32"], -LARGEST["float32"], 3.4028235677973366e38, 1e300, -1e300, 1.7976931348623157e308, 2.2e-16,
]  # fmt: skip
ANY = st.one_of(
    st.sampled_from(SPECIALS),
    st.floats(-10, 10),
    st.floats(-2e-3, 2e-3),
    st.floats(-2e-6, 2e-6),
    st.floats(width=64),
)
NUDGES = st.sampled_from([0.0, 1e-7, -9e-7, 1e-6, 3e-6, 9.9e-5, -9.9e-4, 1e-3, 2e-3, 4e-3, 9e-3, -0.011, 0.5])
LAYOUTS = st.sampled_from(["flat", "strided", "transposed", "reversed"])


def laid_out(values: Array, layout: str) -> Array:
    """The same elements in the same order, in another order of memory."""
    if layout == "strided":
        wide = np.zeros((values.size, 2), values.dtype)
        wide[:, 0] = values
        return wide[:, 0]
    if layout == "transposed":
        return values.reshape(1, -1, 1).T.copy().T
    return values[::-1].copy()[::-1] if layout == "reversed" else values


@st.composite
def cases(draw: Any, kinds: tuple[str, ...] = tuple(KINDS)) -> tuple[Array, str, Array]:
    """Device and bench of one shape: alike, nudged by about a limit, or unrelated."""
    kind = draw(st.sampled_from(kinds))
    bench_dtype = draw(st.sampled_from([np.float64, np.float32]))
    elements = draw(st.lists(st.tuples(ANY, st.one_of(NUDGES, ANY.map(lambda value: (value,)))), max_size=24))
    with np.errstate(all="ignore"):
        bench = np.array([b for b, _ in elements], np.float64).astype(bench_dtype)
        device = np.array(
            [nudge[0] if isinstance(nudge, tuple) else b * (1 + nudge) for b, (_, nudge) in zip(bench, elements)],
            np.float64,
        )
    layout = draw(LAYOUTS)
    device, bench = laid_out(to_kind(device, kind), layout), laid_out(bench, layout)
    if device.size == 1 and draw(st.booleans()):
        device, bench = device.reshape(()), bench.reshape(())
    return device, kind, bench


HARDLY_OVER = np.array([0.0, 2.0**-24], np.float16), "float16", np.array([0.0, -(2.0**-126)], np.float32)
"""An error that is over one ulp by less than float64 holds: its difference in float64 is one ulp."""


@every("release", RELEASES)
@every("name", STANDARDS)
def test_measures_of_any_data(name: str, release: str) -> None:
    @FAST
    @given(cases())
    @example(HARDLY_OVER)
    def check(case: tuple[Array, str, Array]) -> None:
        assert measured(name, *case, release) == same(expected(name, *case, release))

    check()


@every("release", RELEASES)
@every("kind", KINDS)
@every("name", STANDARDS)
def test_measures_of_several_blocks(name: str, kind: str, release: str) -> None:
    """More than two blocks, the last one short, inf and nan in the second one alone."""
    random = np.random.default_rng(7)
    bench = random.normal(size=2 * BLOCK_ELEMENTS + 77) * 10.0 ** random.integers(-8, 4, 2 * BLOCK_ELEMENTS + 77)
    bench = bench.astype(np.float64 if kind == "float32" else np.float32)
    device = to_kind(bench * (1 + random.normal(size=bench.size) * 1e-6), kind)
    bench[BLOCK_ELEMENTS + 5 : BLOCK_ELEMENTS + 9] = [inf, nan, 1e5, -inf]
    device[BLOCK_ELEMENTS + 5 : BLOCK_ELEMENTS + 9] = [inf, 1.0, inf if kind == "float16" else 1e5, inf]
    shape = (7, -1) if bench.size % 7 == 0 else (1, -1)
    device, bench = device.reshape(shape), bench.reshape(shape)
    assert measured(name, device, kind, bench, release) == same(expected(name, device, kind, bench, release))


@FAST
@given(cases(("float32", "float16", "bfloat16")))
def test_first_stage_of_any_data(case: tuple[Array, str, Array]) -> None:
    device, kind, bench = case
    if not bench.size:
        return
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        judged = FirstStage().judge(output(device, kind, bench))
    status, numbers = Reference(device, kind, bench).first_stage()
    assert dict(judged.numbers) == approx(numbers, rel=1e-6, abs=1e-12)
    assert judged.status == status


@FAST
@given(st.lists(st.tuples(ANY, st.one_of(NUDGES, ANY.map(lambda value: (value,)))), min_size=1, max_size=12))
def test_first_stage_of_float64(elements: list[tuple[float, Any]]) -> None:
    """Differences may overflow; nothing warns."""
    bench = np.array([b for b, _ in elements])
    with np.errstate(all="ignore"):
        device = np.array([n[0] if isinstance(n, tuple) else b * (1 + n) for b, n in elements])
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        judged = FirstStage().judge(output(device, "float64", bench))
    status, numbers = Reference(device, "float64", bench).first_stage()
    assert dict(judged.numbers) == approx(numbers, rel=1e-6, abs=1e-12)
    assert judged.status == status


def patterns(kind: str) -> tuple[Any, int]:
    """The integer type of a dtype's bits, and its bits of mantissa."""
    return {"float32": (np.uint32, 23), "float16": (np.uint16, 10), "bfloat16": (np.uint16, 7)}[kind]


def from_bits(bits: Array, kind: str) -> Array:
    own: Any = ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)
    return np.asarray(bits.view(own).astype(KINDS[kind]))


@pytest.mark.parametrize("kind", KINDS)
def test_ulp_is_the_integer_distance_within_a_binade(kind: str) -> None:
    """A bench that the dtype holds, and a device in the same binade: the places of the two numbers differ by it."""
    integer, bits = patterns(kind)
    random = np.random.default_rng(3)
    top = (0x7F800000 >> 16 if kind == "bfloat16" else {"float32": 0x7F800000, "float16": 0x7C00}[kind]) >> bits
    exponents = random.integers(1, top, 2000)
    ours, theirs = random.integers(0, 1 << bits, (2, 2000))
    device, bench = (from_bits(((exponents << bits) | m).astype(integer), kind) for m in (ours, theirs))
    for index in range(0, 2000, 40):
        part = slice(index, index + 1)
        distance = abs(int(ours[index]) - int(theirs[index]))
        found = measured(
            "ulp", device[part], kind, bench[part].astype(np.float64 if kind != "bfloat16" else np.float32)
        )
        assert found["ulp_max"] == distance
        assert found["ulp_share"] == (distance > (32 if kind == "float32" else 1))
    found = measured("ulp", device, kind, bench)
    assert found["ulp_mean"] == approx(np.abs(ours - theirs).mean(), rel=1e-12)


ULP_CASES = [
    ("float32", 1.0, 1 + 2.0**-23, 1),
    ("float32", 2.0, 2 - 2.0**-23, 0.5),  # across a power of two the bench's unit counts
    ("float32", 1 - 2.0**-24, 1.0, 1),
    ("float32", 0.0, 2.0**-23, 1),  # zero is measured with the unit of 1.0
    ("float32", -0.0, 1.0, 2**23),
    ("float32", 2.0**-149, 2.0**-148, 1),  # subnormal: the unit of the least exponent
    ("float16", 2.0**-24, 0.0, 1),
    ("float16", 70000.0, inf, 0),  # the bench is inf in the dtype
    ("float16", 65519.0, inf, inf),  # and here it is not
    ("float16", -70000.0, inf, inf),
    ("bfloat16", 3.397e38, inf, 0),
    ("bfloat16", 3.395e38, inf, inf),
    ("float32", inf, inf, 0),
    ("float32", inf, -inf, inf),
    ("float32", 2.0**55 + 2.0**3, 2.0**55, 2.0**-29),  # exponents are exact: no log2
    ("float32", 2.0**63 - 2.0**10, 2.0**63, 2.0**-29),
]


@every("kind, bench, device, ulp", ULP_CASES)
def test_ulp_worked_examples(kind: str, bench: float, device: float, ulp: float) -> None:
    wide = np.float32 if kind == "bfloat16" else np.float64
    found = measured("ulp", np.array([device], KINDS[kind]), kind, np.array([bench], wide))
    assert found["ulp_max"] == found["ulp_mean"] == ulp


def test_ulp_is_of_the_difference_in_float64() -> None:
    """Exactly, the error is 1 + 2^-102 ulp, and the limit 1: what float64 rounds away is not over the limit."""
    device, kind, bench = HARDLY_OVER
    assert Fraction(float(device[1])) - Fraction(float(bench[1])) > Fraction(1, 2**24)
    found = measured("ulp", device, kind, bench)
    assert found == {"ulp_max": 1.0, "ulp_mean": 0.5, "ulp_share": 0.0}
    over = np.array([0.0, -np.spacing(2.0**-24)])  # the least bench of float64 that counts
    assert measured("ulp", device, kind, over)["ulp_share"] == 0.5


def test_nan_in_one_element_makes_maximum_and_mean_nan() -> None:
    found = measured("ulp", np.array([nan, 2.0], np.float32), "float32", np.array([nan, 1.0]))
    assert math.isnan(found["ulp_max"]) and math.isnan(found["ulp_mean"]) and found["ulp_share"] == 0.5


INF_NAN = [
    (inf, inf, 0), (-inf, -inf, 0), (nan, nan, 0), (65504.0, inf, 0), (inf, 65504.0, 0), (inf, 70000.0, 0),
    (65504.0, 70000.0, 0), (inf, -inf, 1), (nan, inf, 1), (inf, nan, 1), (nan, 1.0, 1), (1.0, nan, 1), (inf, 1.0, 1),
    (-65504.0, inf, 1), (60000.0, inf, 1), (inf, 65430.0, 0),  # in float16 65440, 64 off, not 74
]  # fmt: skip


@every("name", ["absolute", "benchmark", "accumulative"])
@every("device, bench, rate", INF_NAN)
def test_inf_nan_rate(name: str, device: float, bench: float, rate: float) -> None:
    """The rate counts one element among others that are finite."""
    ours, theirs = np.array([device, 1.0], np.float16), np.array([bench, 1.0], np.float32)
    assert measured(name, ours, "float16", theirs)["inf_nan_error_rate"] == rate


def test_benchmark_leaves_the_inf_nan_rate_out_where_all_is_finite() -> None:
    """The rate is there if an element is inf or nan on either side, and only then."""
    ones = np.ones(3, np.float32)
    assert "inf_nan_error_rate" not in measured("benchmark", ones, "float32", ones.astype(np.float64))


def test_root_mean_square_carries_its_correction() -> None:
    """Unmasked arrays come out 5e-5 high, masked ones are scaled to the unmasked."""
    bench, device = np.array([1.0, 1.0, 0.0, inf]), np.array([1.5, 1.0, 0.5, inf], np.float32)
    square = 0.25 / 4 * (4 / (2 + 1e-4) + 1e-4)
    assert measured("benchmark", device, "float32", bench)["rmse"] == approx(math.sqrt(square), rel=1e-12)


def test_bfloat16_has_its_constant_eps() -> None:
    """Its eps is 2^-8, not the eps of the float32 that carries it."""
    bench, device = np.array([1.0, 1.0], np.float32), np.array([1.0, 2.0], np.float32)
    found = measured("benchmark", device, "bfloat16", bench)["max_relative_error"]
    assert Fraction(found).limit_denominator(1000) == Fraction(256, 257)


def test_framework_names_of_dtypes_do_not_matter() -> None:
    """MindSpore says BFloat16."""
    bench, device = np.array([1.0, 1.0], np.float32), np.array([1.0, 2.0], np.float32)
    one = model.Output("api", model.Array(bench, "Float32"), model.Array(device, "BFloat16"))
    assert BenchmarkRatio().measure(one, "seed") == measured("benchmark", device, "bfloat16", bench)


@pytest.mark.parametrize("limit, dtype", [(1e-6, np.float64), (float(np.float32(1e-6)), np.float32)])
def test_limits_are_converted_to_the_benchs_dtype(limit: float, dtype: Any) -> None:
    """A bench of exactly the limit is small, the next number is not."""
    above = np.nextafter(dtype(limit), dtype(1))
    for value, is_small in ((dtype(limit), True), (above, False)):
        bench, device = np.array([value], dtype), np.array([1.0], np.float32)
        found = measured("absolute", device, "float32", bench)
        assert found["absolute_error_rate"] == is_small and found["relative_error_rate"] == (not is_small)


def one(name: str, column: str, kind: str, release: str, device: float, bench: float) -> float:
    """A column of one element."""
    wide = np.float64 if kind == "float32" else np.float32
    return measured(name, np.array([device], KINDS[kind]), kind, np.array([bench], wide), release)[column]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("kind", KINDS)
def test_limits_of_each_release(kind: str, release: str) -> None:
    """A thousandth of each limit below it and above it."""
    rtol, small, atol = ABSOLUTE[release][kind]
    bound = ACCUMULATIVE[kind]
    for step in (0.999, 1.001):
        over = step > 1
        assert one("absolute", "relative_error_rate", kind, release, 1e4, 1e4 / (1 + rtol * step)) == over
        assert one("absolute", "absolute_error_rate", kind, release, 1, small * step) != over
        assert one("absolute", "absolute_error_rate", kind, release, 0, atol * step) == over
        share = "small_value_error_share"
        assert one("benchmark", share, kind, release, 1, SMALL[release][kind][0] * step) != over
        assert one("benchmark", share, kind, release, 0, SMALL[release][kind][1] * step) == over
        assert one("accumulative", "relative_error_rate", kind, release, 1e4, 1e4 / (1 + bound * step)) == over
        assert one("accumulative", "absolute_error_rate", kind, release, 0, bound * step) == over
        assert one("accumulative", "absolute_error_rate", kind, release, 0, step) != over
        assert one("dual", "thousandth", kind, release, 1e4, 1e4 / (1 + 0.001 * step)) != over


@pytest.mark.parametrize(
    "device, bench, rate",
    [
        (np.array([1, 2, 3]), np.array([1, 2, 4]), 1 / 3),
        (np.array([True, False]), np.array([True, True]), 0.5),
        (np.array([1 + 2j, complex(nan, 1)]), np.array([1 + 2j, complex(nan, 1)]), 0),
        (np.array([1 + 2j]), np.array([1 - 2j]), 1),
        (np.array([0.0, nan, nan], np.float64), np.array([-0.0, nan, 1.0]), 1 / 3),
        (np.array([]), np.array([]), 0),
        (np.array(5), np.array(5), 0),
    ],
)
def test_binary_consistency_of_every_dtype(device: Array, bench: Array, rate: float) -> None:
    assert measured("binary", device, device.dtype.name, bench)["error_rate"] == approx(rate)


def test_both_arrays_stay_as_they_were() -> None:
    device, bench = np.array([inf, 1.0, nan], np.float32), np.array([inf, 2.0, 3.0])
    kept = device.copy(), bench.copy()
    one = output(device, "float32", bench)
    for standard in STANDARDS.values():
        first = standard.measure(one, "seed")
        assert standard.measure(one, "seed") == approx(first, nan_ok=True)
    FirstStage().judge(one)
    assert np.array_equal(device, kept[0], equal_nan=True) and np.array_equal(bench, kept[1], equal_nan=True)


def test_unknown_release_is_said() -> None:
    with pytest.raises(UserError, match=r"9\.9"):
        load_thresholds("9.9", "ulp")
