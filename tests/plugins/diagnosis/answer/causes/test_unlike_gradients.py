"""Gradients that the runs compute with other calls are measured relative to the values that these calls add up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import answered, back, call, normal

X, Y, Z = (normal(seed=number) for number in range(3))
BIAS = normal(8, seed=4)
END = "Torch.end.0"


def run(backward: str, size: float, seed: int) -> dict[str, Any]:
    """A step whose gradient of a bias has a ``size`` and comes from a backward call."""
    gradient = normal(8, seed=seed) * np.float32(size)
    update = call(gradient, out=gradient * np.float32(2))
    start = {f"Torch.f{number}.0.forward": call(X, out=Y) for number in range(4)}
    forward = {backward.replace("backward", "forward"): call(Y, BIAS, out=Z), f"{END}.forward": call(Z, out=X)}
    gradients = {f"{END}.backward": back(X, Z), backward: back(Z, [Y, gradient])}
    return start | forward | gradients | {"Tensor.clip.0.forward": update, "Torch.after.0.forward": call(Y, out=X)}


def compare(directory: Path, size: float, task: str) -> Any:
    target = run("Tensor.add.0.backward", size, 5)
    golden = run("Functional.linear.0.backward", size, 6)
    found = answered(directory, target, golden, task).answer
    assert found is not None
    return found


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_gradient_that_is_rounding_of_its_call_is_no_cause(task: str, tmp_path: Path) -> None:
    calls = [cause.op for cause in compare(tmp_path, 1e-9, task).causes]
    assert "Tensor.add.0.backward" not in calls


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_gradient_that_is_larger_is_a_cause(task: str, tmp_path: Path) -> None:
    found = compare(tmp_path, 1e-2, task)
    assert found.outcome.value == "DIVERGED" and found.causes[0].op == "Tensor.add.0.backward"
