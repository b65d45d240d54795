"""The policy of first differences: the best evidence, and statistics alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from probe_metrics.first_difference import FirstDifference
from support.cases import every
from support.measuring import ALL_ONE, PROPERTY, above, below, scalar_value, tensor_value
from support.references.first_difference import evidence, inf, nan, noise_of

from probe_core.model import Kind, Level, Mode, Pair, Statistics, Value, Verdict
from probe_core.model.measure import OpenPair
from probe_core.testing import pair_of_values

NULL = Value(Kind.NULL, "None", "None")


def judge_values(target: Value | None, golden: Value | None, mode: Mode = Mode.STATISTICS) -> Verdict:
    """The verdict on two recorded values without data."""
    return FirstDifference().judge(pair_of_values(target, golden, mode), {})


# -- the best evidence --------------------------------------------------------------------------


class _SingleTensorRun:
    """A run with one tensor."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def tensor(self, value: Value) -> Any:
        return self._array


def judge_recorded(target: tuple[Any, Value], golden: tuple[Any, Value], mode: Mode = Mode.TENSOR) -> Verdict:
    """Return the verdict on two values whose data, checksums and statistics may contradict each other."""
    pair = pair_of_values(target[1], golden[1]).pair
    opened = OpenPair(Pair(pair.target, pair.golden), mode, _SingleTensorRun(target[0]), _SingleTensorRun(golden[0]))
    return FirstDifference().judge(opened, {})


def test_data_before_checksums_before_statistics() -> None:
    ones, others = np.ones(2, np.float32), np.full(2, 1.5, np.float32)
    twice = Statistics(2.0, 2.0, 2.0, 2.0)
    first = tensor_value(ALL_ONE, checksum="aa")
    second = tensor_value(twice, checksum="bb")
    assert judge_recorded((ones, first), (ones, second)).level is Level.PASS
    assert judge_recorded((others, first), (ones, first)).level is Level.ERROR
    one_sum = tensor_value(twice, checksum="aa")
    assert judge_values(first, one_sum, Mode.MD5).level is Level.PASS
    verdict = judge_values(first, tensor_value(ALL_ONE, checksum="bb"), Mode.MD5)
    assert (verdict.level, evidence(verdict)) == (Level.ERROR, "checksum aa against bb")
    assert judge_values(tensor_value(ALL_ONE), tensor_value(twice)).level is Level.ERROR


def test_statistics_where_a_tensor_file_is_missing() -> None:
    alone = tensor_value(ALL_ONE, data_name=None)
    other = tensor_value(Statistics(2.0, 2.0, 2.0, 2.0), data_name=None)
    data = np.ones(2, np.float32)
    assert judge_recorded((data, alone), (data, other)).level is Level.ERROR
    assert judge_recorded((data, alone), (data, tensor_value(ALL_ONE))).level is Level.PASS


def test_checksums_of_two_dtypes_are_not_judged() -> None:
    target = tensor_value(Statistics(), checksum="aa", dtype="torch.bfloat16")
    golden = tensor_value(Statistics(), checksum="bb")
    verdict = judge_values(target, golden, Mode.MD5)
    assert verdict.level is Level.SKIP
    assert "torch.bfloat16 and torch.float32" in evidence(verdict)


def test_statistics_where_checksums_of_two_dtypes_are_not_judged() -> None:
    target = tensor_value(Statistics(9.0, 9.0, 9.0, 9.0), checksum="aa", dtype="torch.bfloat16")
    assert judge_values(target, tensor_value(ALL_ONE, checksum="bb"), Mode.MD5).level is Level.ERROR


def test_a_checksum_on_one_side_alone_leaves_the_statistics() -> None:
    target, golden = tensor_value(ALL_ONE, checksum="aa"), tensor_value(ALL_ONE)
    assert judge_values(target, golden).level is judge_values(golden, target).level is Level.PASS


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
        (above(1.0), 1.0, False),
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


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize(
    ("target", "golden", "differ"),
    [
        (1.0 + 0.9 * 64 * 2**-23, 1.0, False),
        (1.0 + 1.1 * 64 * 2**-23, 1.0, True),
        (-3e8 * (1 + 1e-6), -3e8, False),
        (1e-30 * (1 + 1e-6), 1e-30, False),
        (1e-5, 1e-6, True),  # eps of a normalisation
        (1e-12, 0.0, True),
        (0.0, 1e-12, True),
        (-1.0, 1.0, True),
        (inf, inf, False),
        (inf, 1.0, True),
        (1.0, inf, True),
        (nan, nan, False),
        (1.0, nan, True),
        (1, 1.0, False),
        (2, 1.0, True),
        (1, 1.0000001, True),  # an integer is no number that the program rounded
        (1.0000001, 1, True),
        (True, 1.0, False),
        (10**9, 10**9 + 1, True),
    ],
)
def test_floats_among_scalars_are_rounded(target: Any, golden: Any, differ: bool, mode: Mode) -> None:
    """A float may be one that the program computed, such as a loss; it is held to float32's rounding."""
    verdict = judge_values(scalar_value(target, "x"), scalar_value(golden, "x"), mode)
    assert verdict.level is (Level.ERROR if differ else Level.PASS)
    if verdict.drift is not None:
        assert verdict.drift.noise == noise_of("float32")
        assert verdict.drift[:2] == (abs(target - golden), abs(golden))


def test_sizes_and_slices_differ_by_their_text() -> None:
    def size(text: str, checksum: str) -> Value:
        return Value(Kind.SCALAR, "slice", text, None, Statistics(), checksum)

    assert judge_values(size("(3,)", "aa"), size("(3,)", "aa")).level is Level.PASS
    assert judge_values(size("(3,)", "aa"), size("(3,)", "bb")).level is Level.ERROR
    assert judge_values(size("(3,)", "aa"), size("(2,)", "aa")).level is Level.ERROR


# -- statistics -------------------------------------------------------------------------------------


def judge_statistic(target: Any, golden: Any, place: str, dtype: str = "torch.float32") -> Verdict:
    """One statistic is as given; the others say a tensor of magnitude 1."""
    plain = {"max": 1.0, "min": -1.0, "mean": 0.5, "norm": 1.0}
    first, second = (tensor_value(Statistics(**{**plain, place: value}), dtype=dtype) for value in (target, golden))
    return judge_values(first, second)


@every("place", ["max", "min", "mean", "norm"])
@every("name", ["float16", "bfloat16", "float32", "float64", "complex64"])
def test_statistics_at_the_threshold(place: str, name: str) -> None:
    sign = -1 if place == "min" else 1
    noise = noise_of(name)
    for apart, level in ((noise, Level.PASS), (noise * 0.75, Level.PASS), (noise * 1.25, Level.ERROR)):
        verdict = judge_statistic(sign * (1 + apart), sign * 1.0, place, f"torch.{name}")
        assert verdict.level is level
        assert level is Level.PASS or evidence(verdict).startswith(f"{place} ")
    assert judge_statistic(1 - noise, 1.0, "norm", f"torch.{name}").level is Level.PASS


@pytest.mark.parametrize("spelt", ["Float32", "FLOAT32", "mindspore.Float32", "torch.float32", "float32"])
def test_dtypes_are_known_however_they_are_spelt(spelt: str) -> None:
    verdict = judge_statistic(1 + noise_of("float32"), 1.0, "max", spelt)
    assert verdict.level is Level.PASS
    assert verdict.drift is not None and verdict.drift.noise == noise_of("float32")


def test_a_mean_near_zero_is_compared_with_the_magnitude() -> None:
    """The mean is compared with the magnitude of the tensor, not with itself."""
    assert judge_statistic(3e-7, 1e-7, "mean").level is Level.PASS
    assert judge_statistic(3e-4, 1e-4, "mean").level is Level.ERROR


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
    verdict = judge_statistic(target, golden, place)
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
    target, golden = (tensor_value(Statistics(number, 0), dtype="torch.int64") for number in (2**53 + 1, 2**53))
    assert judge_values(target, golden).level is Level.ERROR


def test_zeros_against_zeros() -> None:
    zeros = tensor_value(Statistics(0.0, 0.0, 0.0, 0.0))
    assert judge_values(tensor_value(Statistics(-0.0, -0.0, 0.0, 0.0)), zeros).level is Level.PASS
    little = tensor_value(Statistics(1e-30, 0.0, 1e-31, 1e-30))
    assert judge_values(little, zeros).level is Level.ERROR


def test_a_mask_without_a_recorded_mean_is_judged_by_the_rest() -> None:
    masked = [tensor_value(Statistics(0.0, -10000.0, mean, 0.0)) for mean in (0.0, None)]
    assert judge_values(*masked).level is Level.PASS


@PROPERTY
@given(st.lists(st.one_of(st.floats(), st.integers(), st.booleans(), st.none(), st.text(max_size=3)),
                min_size=8, max_size=8))  # fmt: skip
def test_whatever_was_recorded_gets_a_verdict(recorded: list[Any]) -> None:
    """Any statistics give a verdict; equal values never differ; distances are not nan."""
    first, second = (tensor_value(Statistics(*recorded[start : start + 4])) for start in (0, 4))
    assert judge_values(first, first).level is not Level.ERROR
    verdict = judge_values(first, second)
    assert verdict.level in (Level.PASS, Level.ERROR, Level.SKIP)
    said = [reason for reason in verdict.reasons if reason.code != "masked"]
    assert bool(said) is (verdict.level is not Level.PASS)
    if verdict.drift is not None:
        assert not any(map(math.isnan, verdict.drift))
        assert math.isfinite(verdict.drift.scale)


@PROPERTY
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.floats(0.001, 1))
def test_a_scaled_tensor_differs_by_its_statistics(numbers: list[float], share: float) -> None:
    """A change of all four statistics is never taken for rounding, nor rounding for it."""
    array = np.array(numbers) + 1e-3
    golden, target = (
        tensor_value(Statistics(*map(float, (a.max(), a.min(), a.mean(), np.linalg.norm(a)))))
        for a in (array, array * (1 + share))
    )
    assert judge_values(target, golden).level is (Level.ERROR if array.any() else Level.PASS)
    last = [below(float(item)) for item in golden.statistics]  # type: ignore[arg-type]
    assert judge_values(tensor_value(Statistics(*last)), golden).level is Level.PASS
