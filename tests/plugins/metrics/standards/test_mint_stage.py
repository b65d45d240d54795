"""The rule of the pre-check of mint, and what standards say without a second machine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from probe_metrics.standards.mint_stage import MintStage, measure_closeness
from probe_precheck.assignment import Assignment
from probe_precheck.checking import create_status_rule, find_tables
from probe_precheck.judging import CallJudge
from probe_precheck.model import (
    Array,
    Call,
    Outcome,
    Output,
    Outputs,
    OutputVerdict,
    Result,
    Skipped,
    Status,
)
from probe_precheck.tables import DETAILS, RESULT, Tables
from support.cases import every

from probe_core.plugins.manager import Manager

PASS, ERROR, SKIP = Status.PASS, Status.ERROR, Status.SKIP
KINDS = {"Float16": np.float16, "Float32": np.float32, "Float64": np.float64, "BFloat16": ml_dtypes.bfloat16}


def held(values: Any, dtype: str = "Float32") -> Array:
    found = np.asarray(values, np.float64).astype(KINDS[dtype])
    return Array(found.astype(np.float32) if dtype == "BFloat16" else found, dtype)


def output(bench: Any, device: Any, dtype: str = "Float32", api: str = "softmax") -> Output:
    return Output(api, Array(np.asarray(bench, np.float64), "Float64"), held(device, dtype))


def spread(count: int = 200, low: float = -1, high: float = 1) -> np.ndarray[Any, Any]:
    return np.random.default_rng(count).uniform(low, high, count)


def alone(
    one: Output, standard: str = "benchmark_ratio", direction: str = "forward", **numbers: float
) -> OutputVerdict:
    return MintStage().judge_alone(one, standard, numbers, direction)


# -- the rule --------------------------------------------------------------------------------------


def test_the_numbers_are_those_of_msprobe() -> None:
    bench, device = np.array([1.0, -2.0, 0.0]), np.array([1.5, -2.0, 1e-9])
    found = measure_closeness(output(bench, device))
    dot, norms = bench @ held(device).values, np.linalg.norm(bench) * np.linalg.norm(held(device).values)
    assert found.cosine == pytest.approx((1e-8 + dot) / (1e-8 + norms), rel=1e-12)
    assert (found.max_abs_error, found.max_relative_error) == (0.5, pytest.approx(0.5))


def test_limits_are_bounds_that_are_missed() -> None:
    ones = np.ones(10)
    judge = MintStage().judge
    assert judge(output(ones, ones + 0.99e-4)).status is PASS
    assert judge(output(ones, ones + 1.01e-4)).status is ERROR
    turned = np.array([1e-5, 0]), np.array([1e-5, 1e-5])
    assert judge(output(*turned)).status is PASS  # the smoothing, 1e-8, hides what is smaller than 1e-4
    assert judge(output([1e-2, 0], [1e-2, 9e-5])).status is PASS


def test_inf_and_nan_are_left_out_where_alike() -> None:
    judge = MintStage().judge
    assert judge(output([np.inf, np.nan, 1.0], [np.inf, np.nan, 1.0])).status is PASS
    assert judge(output([np.nan], [np.nan])).status is PASS
    assert judge(output([np.inf, 1.0], [-np.inf, 1.0])).status is ERROR
    assert judge(output([1.0, 1.0], [np.nan, 1.0])).status is ERROR
    assert judge(output([1e300, 1.0], [np.inf, 1.0])).status is PASS  # beyond float32
    assert alone(output([1.0, 1.0], [np.nan, 1.0])).status is ERROR


@pytest.mark.parametrize("size", [1e-300, 1e-155, 1.0, 1e154, 1e300, 1.7e308])
def test_equal_values_of_any_size_pass(size: float) -> None:
    """Those whose squares no float64 can hold have a cosine all the same."""
    values = size * np.array([1.0, -0.5, 0.25])
    found = measure_closeness(output(values, values, "Float64"))
    assert (found.cosine, found.max_abs_error) == (pytest.approx(1), 0)
    assert MintStage().judge(output(values, values, "Float64")).status is PASS
    other = measure_closeness(output(values, values * [1, 1, -1], "Float64"))
    if size >= 1:
        assert other.cosine == pytest.approx((1 + 0.25 - 0.0625) / (1 + 0.25 + 0.0625), abs=1e-7)


def test_what_cannot_be_compared() -> None:
    judge = MintStage().judge
    assert judge(Output("add", None, None)).status is SKIP
    assert judge(output(np.ones(3), np.ones(4))).status is ERROR
    assert judge(output(np.ones((0, 3)), np.ones((0, 3)))).status is SKIP
    assert judge(Output("max", Array(np.array([1]), "Int64"), held([1.0]))).status is ERROR
    assert judge(Output("item", 1.0, 1.0)).status is PASS and judge(Output("item", 1.0, 2.0)).status is ERROR
    integers = Output("max", Array(np.array([1, 2]), "Int64"), Array(np.array([1, 2], np.int32), "Int32"))
    assert judge(integers).status is PASS and alone(integers, "").status is PASS
    wrong = Output("max", Array(np.array([2**53]), "Int64"), Array(np.array([2**53 + 1]), "Int64"))
    assert alone(wrong, "").status is ERROR


def test_random_numbers_are_compared_by_their_distribution() -> None:
    first, second = (np.random.default_rng(seed).uniform(0, 1, 5000) for seed in (1, 2))
    one = Output("rand", Array(first, "Float64"), held(second), True)
    assert MintStage().judge(one).status is PASS
    two = Output("rand", Array(first, "Float64"), held(second * 0.8), True)
    assert MintStage().judge(two).status is ERROR and alone(two).status is ERROR


# -- standards alone -------------------------------------------------------------------------------


@every("dtype", ["Float16", "BFloat16", "Float32", "Float64"])
@every("scale", [1e-3, 1.0, 4e3])
def test_rounding_passes_and_errors_do_not_at_any_size(dtype: str, scale: float) -> None:
    bench = spread() * scale
    assert alone(output(bench, bench, dtype)).status is PASS
    assert alone(output(bench, bench * 2, dtype)).status is ERROR
    eps = {"Float16": 2.0**-10, "BFloat16": 2.0**-7, "Float32": 2.0**-23, "Float64": 2.0**-52}[dtype]
    assert alone(output(bench, bench * (1 + 200 * eps), dtype)).status is ERROR


def test_a_factor_of_two_on_small_values() -> None:
    bench = spread() * 1e-5
    one = output(bench, bench * 2)
    assert MintStage().judge(one).status is PASS and alone(one).status is ERROR


def test_one_wrong_element_of_many() -> None:
    bench = spread(1000, 0.5, 1)
    device = bench.copy()
    device[7] *= 1.01
    assert alone(output(bench, device)).status is ERROR


def test_exact_apis_are_exact_and_their_gradients_rounded() -> None:
    bench = np.array([0.1, 0.2, 0.3])
    assert alone(output(bench, bench), "binary_consistency").status is PASS  # rounded to the dtype first
    near = output(bench, np.nextafter(held(bench).values, np.float32(1)))
    assert alone(near, "binary_consistency").status is ERROR
    assert alone(near, "binary_consistency", "backward").status is PASS


def test_what_standards_measured_counts() -> None:
    bench = spread()
    far = output(bench, bench * (1 + 1e-3))
    rates = {"inf_nan_error_rate": 0.0, "relative_error_rate": 0.0, "absolute_error_rate": 0.0}
    assert alone(far, "absolute_threshold", **rates).status is PASS
    assert alone(far, "absolute_threshold", **{**rates, "relative_error_rate": 0.1}).status is ERROR
    assert alone(far, "ulp", ulp_share=0.01, ulp_mean=99.0).status is PASS
    assert alone(far, "ulp", ulp_share=0.5, ulp_mean=99.0).status is ERROR
    assert alone(far, "dual_thousandth", thousandth=0.9999).status is PASS
    assert alone(far, "dual_thousandth", thousandth=0.5).status is ERROR
    near = output(bench, bench)
    assert alone(near, "ulp", ulp_share=0.5, ulp_mean=99.0).status is PASS  # a long sum, rounded


# -- tables ----------------------------------------------------------------------------------------


def test_tables_belong_to_the_framework() -> None:
    manager = Manager()
    assert find_tables(manager, "pytorch") == Tables(RESULT, DETAILS)
    found = find_tables(manager, "mindspore")
    msprobe = "API Name,Bench Dtype,Tested Dtype,Shape,Cosine,MaxAbsErr,MaxRelativeErr,Status,Message"
    headers = [column.header("zh") for column in found.details]
    assert headers == [*msprobe.split(","), "Standard", "Standard Message"]
    assert found.result[0].header("en") == "API Name"


def judged(bench: np.ndarray[Any, Any], device: np.ndarray[Any, Any], api: str = "Mint.sin.0") -> Result:
    manager = Manager()
    judge = CallJudge(create_status_rule(manager, "mindspore"), Assignment(manager, "seed"))
    one = output(bench, device)
    return judge.judge_call(Call(api, 0, {}), Outcome(Outputs(one.bench, one.device), Skipped("no kernel")))


def test_the_row_of_an_api_has_both_judgements() -> None:
    bench = spread() * 1e-5
    row = judged(bench, bench * 2)
    assert (row.forward, row.backward, row.standard) == (PASS, SKIP, ERROR)
    said = " ".join(message.text("en") for message in row.messages)
    assert "no kernel" in said and "beyond rounding" in said
    assert row.details[0].standard is ERROR and row.details[1].standard is None
    assert judged(bench, bench).standard is PASS
