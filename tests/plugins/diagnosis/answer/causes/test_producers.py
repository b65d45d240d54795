"""Producers of values, by fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_diagnosis.answer.causes.producers import find_producer, find_value, list_output_dtypes
from support.runs.answered import call, normal, record

from probe_core.flow.opening import open_run
from probe_core.model.run import Run
from probe_core.plugins.manager import Manager

X, Y = normal(seed=1), normal(seed=2)
ADD, MUL, END = "Torch.add.0.forward", "Torch.mul.0.forward", "Torch.end.0.forward"
MODULE = "Module.m.Linear.forward.0"


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[Any], Run]:
    def open_(calls: Any) -> Run:
        return open_run(Manager(), record(tmp_path / "run", calls, "statistics"))

    return open_


def test_the_last_call_that_returned_the_value(opened: Callable[[Any], Run]) -> None:
    run = opened({ADD: call(X, out=Y), MUL: call(X, out=[X, Y]), END: call(Y, X)})
    assert find_producer(run, END, f"{END}.input.0") == MUL
    assert find_producer(run, END, f"{END}.input.1") == MUL
    assert find_producer(run, MUL, f"{MUL}.input.0") == "", "no call returned it before"


def test_an_api_rather_than_the_module_around_it(opened: Callable[[Any], Run]) -> None:
    run = opened({ADD: call(X, out=Y), MODULE: call(X, out=Y), END: call(Y)})
    assert find_producer(run, END, f"{END}.input.0") == ADD


@pytest.mark.parametrize("scope", ["Module", "Cell"])
def test_a_module_if_no_api_returned_it(scope: str, opened: Callable[[Any], Run]) -> None:
    key = MODULE.replace("Module", scope)
    run = opened({ADD: call(X, out=X), key: call(X, out=Y), END: call(Y)})
    assert find_producer(run, END, f"{END}.input.0") == key


def test_values_without_a_producer(opened: Callable[[Any], Run]) -> None:
    bare = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [64]}
    run = opened({ADD: call(bare, out=bare), END: call(bare, 3, Y)})
    for number in (0, 1, 2, 3):
        assert find_producer(run, END, f"{END}.input.{number}") == ""
    assert find_producer(run, "Torch.none.0.forward", "Torch.none.0.forward.input.0") == ""


def test_shape_and_dtype_are_part_of_the_fingerprint(opened: Callable[[Any], Run]) -> None:
    run = opened({ADD: call(X, out=Y.reshape(8, 8)), MUL: call(X, out=Y.astype("float64")), END: call(Y)})
    assert find_producer(run, END, f"{END}.input.0") == ""


def test_values_and_dtypes_of_a_call(opened: Callable[[Any], Run]) -> None:
    run = opened({ADD: call(X, 3, out=[X, Y.astype("float64")])})
    assert list_output_dtypes(run, ADD) == ("torch.float32", "torch.float64")
    assert list_output_dtypes(run, MUL) == ()
    value = find_value(run, ADD, f"{ADD}.input.0")
    assert value is not None
    assert value.shape == (64,)
    assert find_value(run, ADD, f"{ADD}.input.7") is None
