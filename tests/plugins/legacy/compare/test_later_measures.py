"""Measurements of ptdbg_ascend 3.0 to 6.0 on values that have no ordinary answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from probe_legacy.compare.dump import Release
from probe_legacy.compare.later_measures import choose_colors, judge_later, measure_later

from probe_core.model import Colour

NAN, INF = float("nan"), float("inf")
NO, NOT = "Nan", "N/A"
V3, V4, V6 = Release.V3, Release.V4, Release.V6
PLACES = "The position of inf or nan in NPU and bench Tensor do not match."
RELATIVE = "Cannot compare by MaxRelativeError, the data contains nan in dump data."
NUMBER = "This is type of scalar data, can not compare."
ZERO = "Cannot compare by Cosine Similarity, All the data is Zero in {} dump data."


@pytest.mark.parametrize(
    ("release", "npu", "bench", "cells", "verdict"),
    [
        (V3, [1, 2], [1, 2], ("1.0", "0.000000", "0.000000", "1.000000", "1.000000", ""), "Yes"),
        (V4, [1, 2], [1, 2], ("1.0", *["0." + "0" * 12] * 2, *["1." + "0" * 12] * 2, ""), "Yes"),
        (V6, [1, 2], [1, 2], (1.0, 0.0, 0.0, 1.0, 1.0, ""), "Yes"),
        (V6, [1, 4], [1, 2], (0.976187060184, 2.0, 1.0, 0.5, 0.5, ""), "No"),
        (V6, [1, 1.004], [1, 1], (1.0, 0.004, 0.004, 0.5, 1.0, ""), "Yes"),
        (V6, [-1, 0.0005], [1, 0.001], (-0.999998875001, 2.0, 2.0, 0.0, 0.0, ""), "No"),
        (V6, [0, 0], [0, 0], (1.0, 0.0, 0.0, 1.0, 1.0, ""), "Yes"),
        (V6, [0, 0], [1, 2], (NO, 2.0, 1.0, 0.0, 0.0, ZERO.format("npu")), NO),
        (V6, [INF, 1], [INF, 1], (1.0, 0.0, NO, 0.5, 0.5, RELATIVE), "Yes"),
        (V6, [NAN, 1], [NAN, 1], (1.0, 0.0, NO, 0.5, 0.5, RELATIVE), "Yes"),
        (V6, [INF, 1], [1, 1], (*[NOT] * 5, PLACES), "No"),
        (V6, [INF, 1], [NAN, 1], (*[NOT] * 5, PLACES), "No"),
        (V6, [INF, 1], [-INF, 1], (*[NOT] * 5, PLACES), "No"),
        (V6, [5], [4], ("unsupported", 1.0, 0.25, 0.0, 0.0, ""), NO),
        (V6, 5.0, 4.0, ("unsupported", 1.0, 0.25, NO, NO, NUMBER), NO),
        (V6, True, True, ("unsupported", 0.0, 0.0, NO, NO, NUMBER), NO),
        (V6, [], [], ("unsupported", 0, 0, 0, 0, "This is empty data, can not compare."), NO),
        (V4, [1, 2], [1], (*["shape unmatched"] * 5, "Shape of NPU and bench Tensor do not match. Skipped."),
         "Unmatched"),
    ],
)  # fmt: skip
def test_measurements(release: Release, npu: Any, bench: Any, cells: tuple[Any, ...], verdict: str) -> None:
    measured = measure_later(np.array(npu), np.array(bench), release)
    assert measured == cells
    assert judge_later(*measured[:2]) == verdict


def test_zeros_of_the_bench_alone_have_no_cosine() -> None:
    """The tool replaces them by epsilon, and then measures the angle to that."""
    measured = measure_later(np.array([1.0, 2.0]), np.zeros(2), Release.V6)
    assert measured.cosine == "Nan" and measured.message == ZERO.format("Bench")


def test_arrays_are_not_changed() -> None:
    npu, bench = np.array([1.0, INF], np.float32), np.array([0.0, INF], np.float32)
    measure_later(npu, bench, Release.V6)
    assert npu.tolist() == [1.0, INF] and bench.tolist() == [0.0, INF]


@pytest.mark.parametrize(("cosine", "difference", "verdict"), [
    ("0.98", "0.0011", "No"), ("0.98", "0.001", "Yes"), ("0.89", "0.0", "No"), ("1.0", "1.1", "No"), ("1.0", "1.0", "Yes"),
])  # fmt: skip
def test_verdicts(cosine: str, difference: str, verdict: str) -> None:
    assert judge_later(cosine, difference) == verdict


def test_whole_numbers_of_other_dtypes() -> None:
    measured = measure_later(np.array([250, 3], np.uint8), np.array([251, 3], np.uint8), Release.V6)
    assert measured.difference == 1.0  # not 255, which wraps around
    half = measure_later(np.array([1, 0], np.float16), np.array([1, 0], np.float32), Release.V6)
    assert half.difference == 0.0 and half.cosine == 1.0
    mixed = measure_later(np.array([1, 2], np.int64), np.array([1, 0], np.float32), Release.V4)
    assert mixed.difference == "2.000000000000"


OF_TENSORS = [
    "NPU Name",
    "Cosine",
    "MaxAbsErr",
    "One Thousandth Err Ratio",
    "NPU max",
    "NPU min",
    "Bench max",
]
OF_STATISTICS = ["NPU Name", "Max diff", "NPU max", "NPU min", "Bench max"]
IN, OUT = "Torch.relu.0.forward.input.0", "Torch.relu.0.forward.output"
RED, YELLOW = {1: Colour.RED}, {1: Colour.YELLOW}


@pytest.mark.parametrize(
    ("given", "output", "colors"),
    [
        ((1.0, 0.1, 1.0), (1.0, 0.2, 1.0), {}),
        ((1.0, 0.1, 1.0), (1.0, 2e10, 1.0), RED),  # a very large difference
        ((1.0, 0.5, 1.0), (1.0, 9.0, 1.0), {}),
        ((1.0, 0.5, 1.0), (1.0, 10.0, 1.0), YELLOW),  # an order of magnitude
        ((1.0, 20.0, 1.0), (1.0, 10.0, 1.0), {}),
        ((1.0, 0.1, 0.95), (1.0, 0.1, 0.59), RED),  # most values were near, and no longer are
        ((1.0, 0.1, 0.9), (1.0, 0.1, 0.59), YELLOW),
        ((1.0, 0.1, 0.9), (1.0, 0.1, 0.85), {}),
        ((1.0, 0.1, 1.0), (0.85, 0.1, 1.0), YELLOW),  # the angle
        (("unsupported", 0.1, "Nan"), (0.1, 0.1, 0.1), {}),
        (("Nan", "Nan", "Nan"), (0.1, 1000.0, 0.1), {}),  # no partner
    ],
)
def test_tables_of_tensors(given: tuple[Any, ...], output: tuple[Any, ...], colors: dict[int, Colour]) -> None:
    rows = [[IN, *given, 1.0, 0.0, 1.0], [OUT, *output, 1.0, 0.0, 1.0]]
    assert choose_colors(OF_TENSORS, rows) == colors


@pytest.mark.parametrize(
    ("given", "output", "bench", "colors"),
    [
        (0.0, 0.04, 1.0, {}),
        (0.0, 0.2, 1.0, YELLOW),
        (0.02, 0.2, 1.0, {}),  # the input differs as well
        (0.0, 0.6, 1.0, RED),
        (0.0, 0.002, -5.0, YELLOW),  # of a bench that is nowhere positive: in parts of 0.01
        (0.0, 12.0, 1000.0, YELLOW),
    ],
)
def test_tables_of_statistics(given: float, output: float, bench: float, colors: dict[int, Colour]) -> None:
    rows = [[IN, given, 1.0, 0.0, 1.0], [OUT, output, 1.0, 0.0, bench]]
    assert choose_colors(OF_STATISTICS, rows) == colors


@pytest.mark.parametrize("overflow", [NAN, INF, -INF])
def test_overflows_of_the_npu_are_red(overflow: float) -> None:
    assert choose_colors(OF_TENSORS, [[IN, 1.0, 0.0, 1.0, 1.0, overflow, 1.0]]) == {0: Colour.RED}
    assert choose_colors(OF_TENSORS, [[IN, "Nan", "Nan", "Nan", overflow, 1.0, "Nan"]]) == {0: Colour.RED}


def test_outputs_are_compared_with_inputs_of_their_own_call() -> None:
    other = "Torch.exp.0.forward.input.0"
    rows = [[other, 1.0, 0.1, 1.0, 1.0, 0.0, 1.0], [OUT, 0.1, 100.0, 0.1, 1.0, 0.0, 1.0]]
    assert choose_colors(OF_TENSORS, rows) == {}


def test_tables_of_checksums_have_no_colors() -> None:
    assert choose_colors(["NPU Name", "NPU MD5"], [[IN, "1"]]) == {}
