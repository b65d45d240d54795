"""The spread of values between repetitions."""

from __future__ import annotations

import pytest
import torch
from pytest_probe.repetitions import list_repetitions, perturb_tensors
from pytest_probe.spread import (
    blank_values,
    compute_distance,
    list_undetermined,
    measure_spreads,
    round_up,
    spread_step,
)
from pytest_probe.step import Call, Step
from pytest_probe.value_text import TensorValue
from support.cases import every


def value_of(largest: float, checksum: str = "a", norm: float = 4.0) -> TensorValue:
    return TensorValue("float32", (2,), False, (largest, -1.0, 0.0, norm), checksum)


def step_of(*values: TensorValue) -> Step:
    return Step({"Torch.abs.0.forward": Call(list(values))})


def test_distance_is_relative_to_the_largest_element_or_the_norm() -> None:
    assert compute_distance(value_of(2.0), value_of(2.5)) == 0.25
    assert compute_distance(value_of(2.0), value_of(2.0, norm=5.0)) == 0.25
    assert compute_distance(value_of(0.0), value_of(float("nan"))) == 0.0


def test_largest_difference_is_kept_by_checksum_if_it_is_more_than_rounding_of_a_call() -> None:
    golden = step_of(value_of(1.0, "a"), value_of(1.0, "b"), value_of(1.0, "c"))
    repetitions = [step_of(value_of(1 + one, "x"), value_of(1 + 1e-7, "y"), value_of(1.0, "c")) for one in (1e-4, 3e-4)]
    assert measure_spreads([golden], [[step] for step in repetitions]) == [{"a": pytest.approx(3e-4, rel=0.1)}]


def test_rounded_data_count_for_values_that_they_determine_and_for_what_is_computed_from_these() -> None:
    def record(noise: float) -> list[Step]:
        gradient, parameter, other = value_of(1.0 + noise, "g"), value_of(1.0 + noise / 100, "p"), value_of(1.0, "i")
        loss = value_of(1.0 + noise / 100, "l")
        calls = {
            "Module.a.backward.0": Call({"input": [other], "output": [gradient]}),
            "Tensor.add_.0.forward": Call({"input_args": [other, gradient], "input_kwargs": {}, "output": [parameter]}),
            "Torch.mean.0.forward": Call({"input_args": [other], "input_kwargs": {}, "output": [loss]}),
        }
        mean = {"input_args": [parameter], "input_kwargs": {}, "output": [value_of(1.0 + noise / 100, "m")]}
        return [Step(calls), Step({"Torch.mean.0.forward": Call(mean)})]

    first, second = measure_spreads(record(0.0), [], [record(0.1), record(0.2)])
    assert first == {"g": pytest.approx(0.2, rel=0.1), "p": pytest.approx(0.002, rel=0.1)}
    assert second == {"m": pytest.approx(0.002, rel=0.1), "p": pytest.approx(0.002, rel=0.1)}


def test_value_without_a_producer_counts_as_computed_from_sensitive_values_of_an_earlier_step() -> None:
    def record(noise: float) -> list[Step]:
        running_mean = Call({"input_args": [value_of(1.0 + noise / 100, "r")], "output": []})
        return [step_of(value_of(1.0 + noise, "g")), Step({"Functional.batch_norm.0.forward": running_mean})]

    assert measure_spreads(record(0.0), [], [record(0.1)])[1] == {"r": pytest.approx(0.001, rel=0.1)}
    assert measure_spreads(record(0.0)[1:], [], [record(0.1)[1:]]) == [{}]


def test_parameters_with_a_sensitive_gradient_vary_with_rounded_data() -> None:
    def record(noise: float) -> list[Step]:
        phases = [
            {"phase": "gradient", "number": 0, "values": {"bias": value_of(1.0 + noise, "g"), "b": value_of(1.0, "h")}},
            {"phase": "state_after", "number": 0, "values": {"bias.exp_avg": value_of(1.0 + noise / 100, "s")}},
            {"phase": "parameters_after", "number": 0, "values": {"b": value_of(1.0 + noise / 100, "q")}},
        ]
        return [Step({}, phases=phases)]

    assert [*measure_spreads(record(0.0), [], [record(0.1)])[0]] == ["g", "s"]


def test_baseline_differs_by_the_spread() -> None:
    (moved,) = spread_step(step_of(value_of(2.0)), {"a": 0.25}).tensors().values()
    assert compute_distance(value_of(2.0), moved) == 0.25


def test_values_that_rounding_determines_are_not_compared() -> None:
    step = step_of(value_of(1.0, "a"), value_of(1.0, "b"))
    paths = list_undetermined(step, {"a": 0.5, "b": 1e-4})
    assert [value.statistics is None for value in blank_values(step, paths).tensors().values()] == [True, False]


@every("size", [1e-7, 0.123456, 0.99999, 1.0, 12345.6])
def test_spread_is_rounded_up(size: float) -> None:
    assert size <= round_up(size) <= 1.1 * size


def test_repetitions_use_one_thread_and_several() -> None:
    first, others = list_repetitions()
    assert first.data_set == 0 and [other.data_set for other in others] == [0, 1, 2]
    assert others[0].threads != first.threads and 1 in {first.threads, others[0].threads}


@every("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_data_differ_by_rounding_until_they_are_restored(dtype: torch.dtype) -> None:
    tensor, whole = torch.randn(100).to(dtype), torch.arange(3)
    before = tensor.clone()
    restore = perturb_tensors(1, [tensor, tensor, whole, torch.zeros(1).expand(3)])
    difference = ((tensor - before).double().abs() / before.double().abs()).max().item()
    assert 0 < difference <= 2 * torch.finfo(dtype).eps
    restore()
    assert torch.equal(tensor, before) and torch.equal(whole, torch.arange(3))
    perturb_tensors(0, [tensor])
    assert torch.equal(tensor, before)
