"""Red and yellow rows of the workbook of ptdbg_ascend 6.0."""

from __future__ import annotations

from typing import Any

import pytest
from probe_legacy.compare.colors import choose_colors

from probe_core.model import Colour

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
NAN, INF = float("nan"), float("inf")
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
