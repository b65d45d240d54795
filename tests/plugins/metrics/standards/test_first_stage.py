"""The first stage of the pre-check: each rule of section 7, exactly at its limit, just below and just above."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from probe_metrics.standards.distribution import measure_largest_distance
from probe_metrics.standards.first_stage import FirstStage
from probe_precheck.model import Array, Output, OutputVerdict, Status
from probe_precheck.specs import StatusRuleSpec
from pytest import approx

from probe_core.plugins.manager import Manager

inf, nan = math.inf, math.nan
PASS, WARNING, ERROR, SKIP = Status.PASS, Status.WARNING, Status.ERROR, Status.SKIP


def judge(bench: Any, device: Any, api: str = "api", is_random: bool = False) -> OutputVerdict:
    with np.errstate(all="raise"):
        return FirstStage().judge(Output(api, bench, device, is_random))


def arrays(bench: Any, device: Any, kind: str = "float32", wide: Any = np.float64, **more: Any) -> OutputVerdict:
    """Lists as floating-point arrays; bfloat16 as float32, as frameworks hand it over."""
    own = np.float32 if kind == "bfloat16" else np.dtype(kind)
    with np.errstate(all="ignore"):
        ours, theirs = np.array(device, own), np.array(bench, wide)
    return judge(Array(theirs, f"torch.{theirs.dtype}"), Array(ours, f"torch.{kind}"), **more)


def exact(bench: np.ndarray[Any, Any], device: np.ndarray[Any, Any], **more: Any) -> OutputVerdict:
    return judge(Array(bench, f"torch.{bench.dtype}"), Array(device, f"torch.{device.dtype}"), **more)


def said(judged: OutputVerdict, language: str = "en") -> str:
    return " ".join(message.text(language) for message in judged.messages)


# 1 to 3: types and plain values


@pytest.mark.parametrize(
    "bench, device",
    [(True, 1), (1, 1.0), (1, "1"), (None, 1), (1.0, None), (Array(np.ones(1), "torch.float64"), 1.0)],
)
def test_types_differ(bench: Any, device: Any) -> None:
    judged = judge(bench, device)
    assert judged == (ERROR, {}, judged.messages, True)
    assert said(judged, "zh") == said(judged, "en") == "bench and npu output type is different."


def test_none_is_skipped() -> None:
    assert judge(None, None).status is SKIP
    assert said(judge(None, None)) == "Bench output is None, skip this test."


@pytest.mark.parametrize("value", [True, 3, 2.5, "text", nan, 1j])
def test_equal_values_pass(value: Any) -> None:
    assert judge(value, value)[:2] == (PASS, {"error_rate": 0})


@pytest.mark.parametrize("bench, device", [(True, False), (3, 4), (2.5, 2.6), ("a", "b"), (nan, 1.0)])
def test_unequal_values_are_errors(bench: Any, device: Any) -> None:
    """The error rate is 1."""
    assert judge(bench, device)[:2] == (ERROR, {"error_rate": 1})


def test_values_of_other_types_are_skipped() -> None:
    assert judge(slice(1), slice(2)).status is SKIP


# 4: shapes and dtypes


def test_shapes_differ() -> None:
    judged = arrays([[1.0, 2.0]], [1.0, 2.0])
    assert judged.status is ERROR and not judged.numbers
    assert "(1, 2)" in said(judged) and "(2,)" in said(judged)


@pytest.mark.parametrize(
    "bench, device",
    [
        ("float64", "int32"),
        ("int64", "float32"),
        ("bool", "int8"),
        ("uint8", "int32"),
        ("complex64", "float32"),
    ],
)
def test_classes_of_dtypes_differ(bench: str, device: str) -> None:
    judged = exact(np.ones(2, bench), np.ones(2, device))
    assert judged.status is ERROR and not judged.numbers and "cannot compare." in said(judged)
    assert f"torch.{bench}" in said(judged) and f"torch.{device}" in said(judged)


@pytest.mark.parametrize(
    "bench, device",
    [
        ("int64", "int32"),
        ("int8", "int16"),
        ("uint16", "int64"),
        ("bool", "uint8"),
        ("uint8", "bool"),
        ("uint64", "uint64"),
    ],
)
def test_one_class_of_dtypes(bench: str, device: str) -> None:
    """All integers are one class, bool and uint8 the other."""
    judged = exact(np.ones(2, bench), np.ones(2, device))
    assert judged[:2] == (PASS, {"error_rate": 0}) and "error rate only" in said(judged)


def test_complex_is_skipped() -> None:
    judged = exact(np.ones(2, "complex128"), np.ones(2, "complex64"))
    assert judged[:2] == (SKIP, {}) and "not supported" in said(judged)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool"])
@pytest.mark.parametrize("random", [False, True])
def test_no_elements_are_skipped(dtype: str, random: bool) -> None:
    judged = exact(np.ones((0, 3), dtype), np.ones((0, 3), dtype), is_random=random)
    assert judged[:2] == (SKIP, {}) and said(judged) == "no elements"


# 5: integers


def test_integers_are_to_be_equal() -> None:
    judged = exact(np.array([1, 2, 3, 4]), np.array([1, 2, 3, 5]))
    assert judged[:2] == (ERROR, {"error_rate": 0.25})


# 6: floating point. The vectors below have a norm of 100 and a largest element of a power of two.

AT_099 = [32.0] + [24.0] * 11 + [25.0] * 4 + [10.0, 6.0, 2.0]
ONES = [1.0] * 16 + [0.0] * 3


def test_cosine_at_its_limit_is_an_error() -> None:
    """6a: it stops there, with small errors too; the next larger cosine goes on and passes."""
    bench, device = np.array(ONES) / 2**20, np.array(AT_099) / 2**20
    judged = exact(bench, device)
    assert judged.status is ERROR and judged.numbers == {"cosine": 0.99}
    device[1] *= 1 + 1e-6
    judged = exact(bench, device)
    assert judged.status is PASS and list(judged.numbers) == ["cosine", "max_abs_error"]
    assert 0.99 < judged.numbers["cosine"] < 0.99001
    device[1] *= 1 - 3e-6
    assert exact(bench, device).status is ERROR


def test_cosine_has_no_scale() -> None:
    judged = exact(np.array([1e300, 1e300, 0.0]), np.array([1e-10, 1e-10, 0.0]))
    assert judged.numbers["cosine"] == approx(1)


def test_opposite_is_minus_one() -> None:
    assert arrays([1.0, 2.0], [-1.0, -2.0])[:2] == (ERROR, {"cosine": -1.0})


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_one_element_has_no_cosine(shape: tuple[int, ...]) -> None:
    judged = arrays(np.full(shape, 1.0), np.full(shape, -1.0))
    assert judged.status is ERROR and judged.numbers == {"max_abs_error": 2, "thousandth": 0}
    assert said(judged).startswith("All the data in device dump data is scalar")
    assert arrays(np.full(shape, 1.0), np.full(shape, 1.0)).status is PASS


def test_zero_sides() -> None:
    """Both zero: no cosine, passes; one of them: an error. A side is zero up to 2^-52."""
    tiny, above = 2.0**-52, np.nextafter(2.0**-52, 1)
    assert exact(np.array([0.0, tiny]), np.array([-0.0, 0.0]))[:2] == (PASS, {"max_abs_error": tiny})
    for bench, device in ((1.0, tiny), (tiny, 1.0), (above, 0.0)):
        judged = exact(np.array([bench, bench]), np.array([device, device]))
        assert judged[:2] == (ERROR, {}) and "zero" in said(judged)
    assert exact(np.array([above, above]), np.array([above, above])).numbers["cosine"] == approx(1)


@pytest.mark.parametrize("wide", [np.float64, np.float32])
def test_largest_error_at_its_limit_goes_on(wide: Any) -> None:
    """The limit is a number of the bench's dtype."""
    limit = wide(0.001)
    at = exact(np.array([1, 0], wide), np.array([1, limit], wide))
    below = exact(np.array([1, 0], wide), np.array([1, np.nextafter(limit, wide(0))], wide))
    above = exact(np.array([1, 0], wide), np.array([1, np.nextafter(limit, wide(1))], wide))
    assert below.status is PASS and list(below.numbers) == ["cosine", "max_abs_error"]
    assert at.numbers["max_abs_error"] == limit and at.numbers["thousandth"] == 0.5
    assert at.status is above.status is ERROR


def test_largest_error_is_held_against_the_limit_of_float32() -> None:
    """The number 0.0010000000275 is above 0.001 and below float32's 0.001."""
    for wide, status in ((np.float32, PASS), (np.float64, ERROR)):
        assert arrays([1.0, 2e-11], [1.0, 0.001], "float32", wide).status is status


def spoilt(size: int, kind: str) -> OutputVerdict:
    """All ones; one element of the device is off by 0.05."""
    device = np.ones(size)
    device[0] = 1.05
    return arrays(np.ones(size), device, kind)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_shares_of_32_and_64_bits(kind: str) -> None:
    """6d: share > 1 - t, so that 999 of 1000 miss the thousandth and 9999 of 10000 the ten-thousandth."""
    assert spoilt(1000, kind).numbers["thousandth"] == 0.999
    assert spoilt(1000, kind).status is ERROR
    assert "ten_thousandth" not in spoilt(1000, kind).numbers
    assert spoilt(1001, kind).status is WARNING
    assert spoilt(10000, kind).numbers["ten_thousandth"] == 0.9999
    assert spoilt(10000, kind).status is WARNING
    assert spoilt(10001, kind).status is PASS
    assert "hundredth" not in spoilt(10001, kind).numbers


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_shares_of_16_bits(kind: str) -> None:
    """6c."""
    assert spoilt(100, kind).numbers["hundredth"] == 0.99
    assert spoilt(100, kind).status is ERROR
    assert "thousandth" not in spoilt(100, kind).numbers
    assert spoilt(101, kind).status is WARNING
    assert spoilt(1000, kind).status is WARNING
    assert spoilt(1001, kind).status is PASS
    assert "ten_thousandth" not in spoilt(1001, kind).numbers


@pytest.mark.parametrize("step, status", [(0, ERROR), (1, ERROR), (-1, WARNING)])
def test_relative_error_at_its_limit_is_not_below_it(step: int, status: Status) -> None:
    """One element of 2000 is off, one has a zero bench and an error of just 0.001 eps."""
    bench = np.ones(2000)
    device = bench.copy()
    device[0], bench[1] = 1.5, 0
    device[1] = np.nextafter(0.001 * 2.0**-52, step * inf) if step else 0.001 * 2.0**-52
    judged = exact(bench, device)
    assert judged.status is status
    assert judged.numbers["thousandth"] == (0.9995 if step < 0 else 0.999)


def test_bfloat16_has_its_own_eps() -> None:
    """The difference 0.00003 against 0 is 0.0077 of 2^-8, a million of float32's eps."""
    judged = arrays([1.0, 1.0, 0.0], [1.0, 1.002, 0.00003], "bfloat16", np.float32)
    assert judged.numbers["hundredth"] == 1
    assert arrays([1.0, 1.0, 0.0], [1.0, 1.002, 0.00003], "float16", np.float32).numbers["hundredth"] == approx(2 / 3)


# inf and nan


def test_inf_and_nan_alike_are_left_out() -> None:
    special = [inf, -inf, nan]
    judged = arrays([*special, 1.0, 2.0], [*special, 1.0, 2.0])
    assert judged.status is PASS and judged.numbers == {"cosine": approx(1), "max_abs_error": 0}
    assert arrays(special, special)[:3] == (PASS, {}, ())
    assert arrays([nan, 1.0], [nan, 1.5]).numbers == {"max_abs_error": 0.5, "thousandth": 0}


@pytest.mark.parametrize("bench, device", [(inf, -inf), (inf, nan), (nan, inf), (nan, 1.0), (1.0, inf), (inf, 1.0)])
def test_inf_and_nan_that_differ_are_errors(bench: float, device: float) -> None:
    judged = arrays([1.0, 2.0, bench], [1.0, 2.0, device])
    assert judged[:2] == (ERROR, {}) and said(judged) == "inf/nan differ"


@pytest.mark.parametrize(
    "kind, bench, status",
    [("float16", 65520.0, PASS), ("float16", 65519.0, ERROR), ("float16", -65520.0, ERROR),
     ("bfloat16", 3.397e38, PASS), ("bfloat16", 3.395e38, ERROR), ("float32", 1e300, PASS)],
)  # fmt: skip
def test_inf_where_the_bench_rounds_to_it(kind: str, bench: float, status: Status) -> None:
    """A bench beyond the device's dtype is the inf that it rounds to."""
    wide = np.float32 if kind == "bfloat16" else np.float64
    assert arrays([1.0, 2.0, bench], [1.0, 2.0, inf], kind, wide).status is status


# dropout, and random numbers


def dropped(size: int, bench: int, device: int, api: str = "dropout") -> OutputVerdict:
    sides = [np.where(np.arange(size) < zeros, 0.0, 2.0) for zeros in (bench, device)]
    return exact(*sides, api=api, is_random=True)


@pytest.mark.parametrize("api", ["dropout", "feature_alpha_dropout", "dropout2d"])
def test_dropout_counts_zeros(api: str) -> None:
    assert dropped(100, 50, 59, api)[:] == (PASS, {}, (), False)
    assert dropped(100, 50, 60, api)[:] == (ERROR, {}, (), False)
    assert dropped(100, 60, 50, api).status is ERROR
    assert dropped(1000, 500, 599, api).status is PASS
    assert dropped(99, 0, 99, api)[:] == (PASS, {}, (), False)


def test_dropout_still_wants_one_shape() -> None:
    judged = arrays(np.ones(200), np.ones(201), api="dropout")
    assert judged.status is ERROR and judged.shown


def drawn(draw: str, size: int, seed: int, kind: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(seed)
    return np.asarray(getattr(random, draw)(size=size)).astype(kind)


@pytest.mark.parametrize("size", [100, 1000, 200_000])
@pytest.mark.parametrize("draw", ["standard_normal", "random", "exponential"])
def test_random_numbers_of_one_distribution_pass(draw: str, size: int) -> None:
    for kind in ("float32", "float16"):
        judged = exact(drawn(draw, size, 1, "float64"), drawn(draw, size, 2, kind), is_random=True)
        assert judged.status is PASS and judged.shown and not judged.numbers
        assert "not compared element by element" in said(judged)


def test_random_numbers_of_other_distributions_fail() -> None:
    bench = drawn("random", 1000, 1, "float32")
    for device in (
        bench * 2,
        bench - 0.3,
        np.zeros_like(bench),
        drawn("standard_normal", 1000, 1, "float32"),
    ):
        judged = exact(bench, device, is_random=True)
        assert judged.status is ERROR and judged.shown and "not compared element by element" in said(judged)
        assert exact(bench[:99], device[:99], is_random=True).status is PASS


def test_random_integers_and_bool() -> None:
    random = np.random.default_rng(5)
    assert exact(random.permutation(5000), random.permutation(5000).astype(np.int32), is_random=True).status is PASS
    coins = [random.random(5000) < share for share in (0.5, 0.5, 0.9)]
    assert exact(coins[0], coins[1], is_random=True).status is PASS
    assert exact(coins[0], coins[2], is_random=True).status is ERROR


def test_random_bfloat16_is_coarser_than_its_bench() -> None:
    """A device draws multiples of 2^-8; a million of them are no other distribution."""
    random = np.random.default_rng(6)
    device = random.integers(0, 256, 1_000_000).astype(np.float32) / 256
    assert arrays(random.random(1_000_000), device, "bfloat16", np.float32, is_random=True).status is PASS


def test_random_dtypes_and_shapes_are_to_agree() -> None:
    assert exact(np.ones(200), np.ones((200, 1)), is_random=True).status is ERROR
    assert exact(np.ones(200), np.ones(200, np.int64), is_random=True).status is ERROR
    assert judge(0.5, 0.25, is_random=True).status is PASS


def test_distance_at_its_limit_passes() -> None:
    """N = 100: sqrt(ln(2e6) / 100) = 0.381, so that 38 elements apart pass and 39 do not."""
    bench = np.zeros(100)
    for moved, status in ((38, PASS), (39, ERROR)):
        device = bench.copy()
        device[:moved] = 1
        assert exact(bench, device, is_random=True).status is status


def test_largest_distance_of_distributions() -> None:
    random = np.random.default_rng(8)
    first, second = (
        random.integers(0, 30, 150).astype(float),
        np.append(random.normal(15, 8, 148), [nan, inf]),
    )
    naive = max(abs((first <= x).mean() - (second <= x).mean()) for x in [*first, *second[:-2]])
    assert measure_largest_distance(first, second) == approx(naive)


# hints


def test_topk_says_what_sorted_does() -> None:
    """The hint is there if the call fails, and only then."""
    for bench in (np.array([3, 2]), np.array([3.0, 2.0])):
        judged = exact(bench, bench[::-1], api="topk")
        assert judged.status is ERROR
        assert "sorted=False" in said(judged) and "sorted=False" in said(judged, "zh")
        assert "sorted=False" not in said(exact(bench, bench, api="topk"))
        assert "sorted=False" not in said(exact(bench, bench[::-1]))


@pytest.mark.parametrize("api", ["npu_rms_norm_dynamic_quant", "npu_dynamic_quant", "npu_quant_lightning_indexer"])
def test_quantised_integers_may_be_off_by_one(api: str) -> None:
    for dtype in ("int8", "uint8", "int64"):
        bench = np.array([1, 2, 100], dtype)
        assert exact(bench, bench + np.array([1, 0, 1], dtype), api=api)[:2] == (PASS, {"max_abs_error": 1})
        assert exact(bench, bench + np.array([0, 2, 0], dtype), api=api)[:2] == (ERROR, {"max_abs_error": 2})
    assert exact(np.array([-128], "int8"), np.array([127], "int8"), api=api).numbers == {"max_abs_error": 255}
    ends = np.array([-(2**63), 2**63 - 1])
    assert exact(ends, ends[::-1], api=api).numbers == {"max_abs_error": 2**64 - 1}
    assert exact(np.ones(3), np.ones(3, "float32"), api=api).numbers == {
        "cosine": approx(1),
        "max_abs_error": 0,
    }
    assert exact(np.array([1]), np.array([2])).status is ERROR


def test_it_is_a_plugin() -> None:
    rule = Manager().find("status_rules", "first_stage", StatusRuleSpec)
    assert isinstance(rule.make(), FirstStage) and not rule.framework
