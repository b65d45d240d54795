"""Expressions that the runs compute with other calls: only their results are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import answered, back, call, normal

from probe_core.model.answers import Answer

X, Y, Z = (normal(seed=number) for number in range(3))
LESS, MORE = np.float32(0.25), np.float32(0.75)
MIN, MAX, ABS, SUB = "Torch.min.0.forward", "Torch.max.0.forward", "Tensor.abs.0.forward", "Tensor.sub.0.forward"
ADD, MODULE = "Tensor.add.0.forward", "Module.net.Net.forward.0"
GRADIENT = "Module.net.Net.parameters_grad"
TAIL = {f"Torch.later{number}.0.forward": call(X * np.float32(number + 2), out=Y) for number in range(8)}


def product(number: int, value: Any, factor: Any, result: Any = None) -> dict[str, Any]:
    result = value * factor if result is None else result
    return {f"Tensor.mul.{number}.forward": call(value, float(factor), out=result)}


def soft_minimum(*, after: Any = (), tail: Any = TAIL) -> dict[str, Any]:
    """The golden: a weighted sum of the smaller and the larger of two values."""
    low, high = np.minimum(X, Y), np.maximum(X, Y)
    total = low * MORE + high * LESS
    block = {MIN: call(X, Y, out=low), **product(0, low, MORE), MAX: call(X, Y, out=high), **product(1, high, LESS)}
    return block | {
        ADD: call(low * MORE, high * LESS, out=total),
        "Torch.end.0.forward": call(total, out=Z),
        **tail,
        **dict(after),
    }


def by_distance(*, factor: Any = LESS, after: Any = (), tail: Any = TAIL) -> dict[str, Any]:
    """The same by the smaller value and the distance; with another factor, another result."""
    low, distance = np.minimum(X, Y), np.abs(X - Y)
    total = low + distance * factor
    end = {"Torch.end.0.forward": call(total, out=Z if factor == LESS else Z * 2)}
    block = {MIN: call(X, Y, out=low), SUB: call(X, Y, out=X - Y), ABS: call(X - Y, out=distance)}
    return (
        block
        | product(0, distance, factor)
        | {ADD: call(low, distance * factor, out=total), **end, **tail, **dict(after)}
    )


def answer(directory: Path, target: Any, golden: Any, task: str = "tensor") -> Answer:
    found = answered(directory, target, golden, task).answer
    assert found is not None
    return found


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_another_expression_with_the_same_result_agrees(task: str, tmp_path: Path) -> None:
    for name, runs in (("1", (by_distance(), soft_minimum())), ("2", (soft_minimum(), by_distance()))):
        found = answer(tmp_path / name, *runs, task)
        assert found.outcome.value == "AGREE", found.causes
        assert not found.causes and found.coverage is not None and found.coverage.excused["region"]


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_another_expression_with_another_result_is_named(task: str, tmp_path: Path) -> None:
    found = answer(tmp_path, by_distance(factor=np.float32(0.5)), soft_minimum(), task)
    assert found.outcome.value == "DIVERGED"
    assert {found.causes[0].op, *found.causes[0].evidence.values()} & {ABS, SUB, MAX}


def test_few_equal_statistics_do_not_show_equal_results(tmp_path: Path) -> None:
    found = answer(tmp_path, by_distance(tail={}), soft_minimum(tail={}), "statistics")
    assert found.outcome.value != "AGREE"


def test_a_value_that_no_call_receives_is_named(tmp_path: Path) -> None:
    """The program may print it."""
    runs = by_distance(), soft_minimum()
    for run in runs:
        del run[ADD]
    assert answer(tmp_path, *runs).outcome.value == "DIVERGED"


def test_a_gradient_that_differs_shows_an_effect(tmp_path: Path) -> None:
    """A layer with zero weights hides from the result what its gradient shows."""
    ends = [{"Torch.end.0.backward": back(Y, X), GRADIENT: {"weight": [value]}} for value in (X, X * np.float32(2))]
    found = answer(tmp_path, by_distance(after=ends[0]), soft_minimum(after=ends[1]))
    assert found.outcome.value == "DIVERGED"
    assert found.causes[0].op in (ABS, "Tensor.mul.0.forward")
