"""Rounding of long sums: the measured floors, the constants that they justify, and what they change."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.timeline.floors import find_class, find_floor, load_floors
from probe_metrics.thresholds import load_thresholds
from support.cases import every
from support.runs.answered import answered, back, call, normal

from probe_core.model.answers import Answer

ROOT = Path(__file__).parents[4]
NORM, ROUNDED = "Functional.layer_norm.0.backward", "float16"
NOISE = load_thresholds("drift")["noise"]
LONG = 4096
"""Number of summands up to which the constants of all classes but one hold."""
CONSTANT = [name for name in load_floors()["apis"] if name != "normalization_backward"]


def test_the_data_are_of_the_classes_and_lengths_that_are_calibrated() -> None:
    spec = importlib.util.spec_from_file_location("calibrate", ROOT / "benchmarks" / "calibrate.py")
    assert spec is not None and spec.loader is not None
    calibrate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(calibrate)
    assert list(load_floors()["floors"]) == list(calibrate.CLASSES) and set(load_floors()["apis"]) <= set(
        calibrate.CLASSES
    )
    assert load_floors()["lengths"] == list(calibrate.LENGTHS)
    for name, (_, lengths) in calibrate.CLASSES.items():
        for kind in calibrate.DTYPES:
            found = load_floors()["floors"][name][str(kind).removeprefix("torch.")]
            assert len(found) == len(lengths) and all(0 <= floor < math.inf for floor in found)


@every("name", CONSTANT)
@every("kind", list(load_floors()["eps"]))
def test_the_constants_are_above_what_was_measured(name: str, kind: str) -> None:
    """``drift.noise`` of the thresholds, which holds for calls of every class."""
    for length in load_floors()["lengths"]:
        if length <= LONG:
            assert find_floor(name, kind, length) < NOISE[kind] * load_floors()["eps"][kind]


def test_floors_grow_with_the_length_up_to_a_ceiling() -> None:
    name = "normalization_backward"
    lengths = (1, 100, 5000, 2**16, 2**20)
    floors = [find_floor(name, "float32", length) for length in lengths]
    assert floors == sorted(floors) and floors[1] == find_floor(name, "float32", 256)
    assert floors[-1] == pytest.approx(4 * floors[-2])
    assert find_floor(name, "bfloat16", 2**20) == load_floors()["ceiling"]
    assert find_floor(name, "bfloat16", 4) <= 2 * load_floors()["eps"]["bfloat16"]
    assert find_floor(name, "float8_e5m2", 2**20) == 0


@pytest.mark.parametrize(
    ("op", "name"),
    [
        ("Functional.layer_norm.0.backward", "normalization_backward"), ("Torch.sum.12.forward", "reduction"),
        ("Tensor.__matmul__.0.backward", "matmul"), ("Torch.sum.0.backward", ""), ("Torch.exp.0.forward", ""),
        ("Module.sum.Linear.forward.0", ""), ("Functional.embedding.0.backward", ""), ("", ""),
    ],
)  # fmt: skip
def test_classes_go_by_api_and_direction(op: str, name: str) -> None:
    assert find_class(op) == name


def summed(given: Any, x: Any) -> Any:
    """The gradient of a weight, added row by row in the dtype."""
    return np.add.accumulate((given * x).astype(given.dtype), axis=0)[-1]


def answer(directory: Path, gradients: tuple[Any, Any], rows: int, task: str, op: str = NORM) -> Answer:
    given, x = normal(rows, 4, seed=1).astype(ROUNDED), normal(rows, 4, seed=2).astype(ROUNDED)
    forward = op.replace("backward", "forward")
    runs = [
        {forward: call(x, out=x), op: back(given, [given, gradient]), "Torch.exp.0.forward": call(x, out=x)}
        for gradient in gradients
    ]
    found = answered(directory, *runs, task).answer
    assert found is not None
    return found


def test_sums_of_many_rows_in_another_order_agree(tmp_path: Path) -> None:
    """They differ by more than 4 eps of float16, which is the limit of all other calls."""
    rows = 16384
    given, x = (np.abs(normal(rows, 4, seed=n)).astype(ROUNDED) / 64 for n in (1, 2))
    order = np.random.default_rng(3).permutation(rows)
    gradients = (summed(given, x), summed(given[order], x[order]))
    apart = np.linalg.norm(np.subtract(*gradients, dtype=float)) / np.linalg.norm(gradients[1].astype(float))
    assert NOISE[ROUNDED] * load_floors()["eps"][ROUNDED] < apart
    assert answer(tmp_path / "long", gradients, rows, "tensor").outcome.value == "AGREE"
    for number, (count, op) in enumerate(((16, NORM), (rows, "Functional.other.0.backward"))):
        found = answer(tmp_path / str(number), gradients, count, "tensor", op)
        assert found.outcome.value != "AGREE" and found.causes[0].op == op


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_more_than_the_floor_is_a_cause(task: str, tmp_path: Path) -> None:
    gradient = np.array([1, -2, 3, 4], ROUNDED)
    found = answer(tmp_path, (gradient * np.float16(1.15), gradient), 16384, task)
    assert (found.outcome.value, found.causes[0].op) == ("DIVERGED", NORM)
