"""Wrong kernels that an absolute limit of 0.001 hides: found in both stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_metrics.standards.benchmark_ratio import BenchmarkRatio
from probe_metrics.standards.first_stage import FirstStage, RoundingMessage
from probe_precheck.api import Array, Output, Status
from probe_precheck.model import Numbers
from support.cases import every
from support.programs.numpy_kernels import gelu_slope, softmax

RULE = FirstStage()
RANDOM = np.random.default_rng(3)


def case(name: str, *, wrong: bool) -> tuple[Any, Any]:
    """The device's output and the reference."""
    kind, size = name.split()
    x = np.random.default_rng(5).standard_normal((64, int(size))).astype(np.float32).astype(np.float64) * 2
    if kind == "softmax":
        return softmax(x, np.float16 if wrong else np.float32), softmax(x)
    gradient = 1e-3 * RANDOM.standard_normal(x.shape)
    return gelu_slope(x, tanh=wrong) * gradient, gelu_slope(x, tanh=False) * gradient


CASES = ("softmax 16", "softmax 64", "softmax 1024", "gelu 16", "gelu 64", "gelu 256")


def output(device: Any, bench: Any, moved: Any = None) -> Output:
    found = None if moved is None else (lambda: Array(np.asarray(moved, np.float64), "torch.float64"))
    return Output(
        "softmax",
        Array(np.asarray(bench, np.float64), "torch.float64"),
        Array(np.asarray(device, np.float32), "torch.float32"),
        moved=found,
    )


@pytest.mark.parametrize("name", CASES)
def test_the_first_stage_fails_what_the_absolute_limit_passes(name: str) -> None:
    device, bench = case(name, wrong=True)
    found = output(device, bench)
    judged, alone = RULE.judge(found), RULE.judge_alone(found, "", {}, "forward")
    assert (judged.status, alone.status) == (Status.PASS, Status.ERROR)
    (message,) = [text for text in judged.messages if isinstance(text, RoundingMessage)]
    assert message.english.startswith("Within the limits; beyond rounding: ")
    assert alone.messages == (message,)


@pytest.mark.parametrize("name", CASES)
def test_right_kernels_are_left_to_the_guide(name: str) -> None:
    found = output(*case(name, wrong=False))
    assert RULE.judge(found).status is Status.PASS and not RULE.judge(found).messages
    assert RULE.judge_alone(found, "", {}, "forward").status is Status.SKIP


def test_outputs_that_move_more_than_they_are_rounded_pass() -> None:
    """A sum that cancels is off by as much as its inputs are rounded."""
    bench = 1e-6 * RANDOM.standard_normal(1000)
    device = bench * (1 + 1e-4 * RANDOM.standard_normal(1000))
    assert RULE.judge_alone(output(device, bench), "", {}, "backward").status is Status.ERROR
    moved = bench * (1 + 1e-4 * RANDOM.standard_normal(1000))
    assert RULE.judge_alone(output(device, bench, moved), "", {}, "backward").status is Status.SKIP
    a_little = bench * (1 + 1e-8 * RANDOM.standard_normal(1000))
    assert RULE.judge_alone(output(device, bench, a_little), "", {}, "backward").status is Status.ERROR


def test_outputs_that_miss_a_limit_are_left_to_it() -> None:
    bench = RANDOM.standard_normal(1000)
    found = output(bench * 1.01, bench)
    assert RULE.judge(found).status is Status.ERROR
    assert RULE.judge_alone(found, "", {}, "forward").status is Status.SKIP


def test_a_gradient_that_is_zero_in_theory_counts_as_a_warning() -> None:
    """It misses the cosine; rounding of the inputs moves it by as much. The status stays the guide's."""
    bench, moved, device = 1e-12 * RANDOM.standard_normal((3, 1000))
    found = output(device, bench, moved)
    judged, alone = RULE.judge(found), RULE.judge_alone(found, "", {}, "backward")
    assert judged.status is Status.ERROR and judged.messages[-1].english.startswith("Fragile, not wrong: ")
    assert alone == (Status.WARNING, {}, judged.messages[-1:], True)
    for other in (output(device, bench), output(device, bench, bench), output(device + 1e-3, bench, moved)):
        assert RULE.judge(other).status is Status.ERROR
        assert RULE.judge_alone(other, "", {}, "backward").status is Status.SKIP


def test_inf_or_nan_on_one_side_stays_an_error() -> None:
    bench = RANDOM.standard_normal(10)
    device = bench.copy()
    device[3] = np.inf
    assert RULE.judge(output(device, bench, device)).status is Status.ERROR


def test_an_output_that_passes_by_its_ratios_is_measured_as_well() -> None:
    bench = 100 * RANDOM.standard_normal(10_000)
    device = bench * (1 + 3e-5)
    assert RULE.judge(output(device, bench)).status is Status.PASS
    assert RULE.judge_alone(output(device, bench), "", {}, "forward").status is Status.SKIP
    assert RULE.judge_alone(output(device, bench, bench), "", {}, "forward").status is Status.ERROR


@every("name", CASES)
@every("release", ["guide", "8.3"])
def test_the_second_stage_fails_it_beside_a_right_device(name: str, release: str) -> None:
    standard = BenchmarkRatio()
    rows = []
    for wrong in (True, False):
        cells = standard.measure(output(*case(name, wrong=wrong)), release)
        texts = {key: repr(float(value)) for key, value in cells.items()}
        rows.append(Numbers({**texts, "device_dtype": "torch.float32"}))
    assert standard.judge(*rows, release).status is Status.ERROR
