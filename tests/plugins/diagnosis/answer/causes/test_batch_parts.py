"""Work that one run does in parts: the statistics of the parts together are held against those of the whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import answered, call, normal

COUNT = 4
WHOLE = normal(8, 6, seed=1)
WEIGHT = normal(6, 6, seed=2)


def run(parts: int, factor: float = 1.0, at: int = 1, loss: str = "mean") -> dict[str, Any]:
    """Some layers on the rows of a batch, in so many parts; ``factor`` is wrong in the last part."""
    calls: dict[str, Any] = {"Torch.start.0.forward": call(WEIGHT, out=WEIGHT)}
    numbers: dict[str, int] = {}
    ends, losses = [], []
    for part, rows in enumerate(np.split(WHOLE, parts)):
        for layer in range(COUNT):
            name = f"Functional.layer{layer}"
            number = numbers[name] = numbers.get(name, -1) + 1
            wrong = factor if part == parts - 1 and layer == at else 1.0
            made = (np.tanh(rows @ WEIGHT) * np.float32(wrong)).astype(np.float32)
            calls[f"{name}.{number}.forward"] = call(rows, WEIGHT, -np.inf, out=made)
            rows = made
        ends.append(rows)
        losses.append(np.asarray(getattr(rows, loss)(), np.float32))
        calls[f"Torch.loss.{part}.forward"] = call(rows, out=losses[-1])
    joined = np.concatenate(ends)
    return calls | {"Torch.relu.0.forward": call(joined, out=np.maximum(joined, 0))}


@pytest.mark.parametrize("task", ["tensor", "statistics"])
@pytest.mark.parametrize(("parts", "side"), [((2, 1), "target"), ((1, 4), "golden")])
def test_parts_that_agree_with_the_whole(parts: tuple[int, int], side: str, task: str, tmp_path: Path) -> None:
    found = answered(tmp_path, run(parts[0]), run(parts[1]), task).answer
    assert found is not None
    assert found.outcome.value == "AGREE"
    assert found.sentence.startswith(f"AGREE: the {side} computes in {max(parts)} parts what the ")
    assert not found.causes


@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_a_part_that_is_wrong(task: str, tmp_path: Path) -> None:
    found = answered(tmp_path, run(2, factor=1.01), run(1), task).answer
    assert found is not None
    assert found.outcome.value == "DIVERGED"


def test_losses_of_parts_add_up(tmp_path: Path) -> None:
    found = answered(tmp_path, run(2, loss="sum"), run(1, loss="sum")).answer
    assert found is not None
    assert found.outcome.value == "AGREE"


def test_fewer_rows_are_no_part(tmp_path: Path) -> None:
    """A run that drops half of its batch."""
    dropped = {key: value for key, value in run(2).items() if ".1." not in key}
    found = answered(tmp_path, dropped, run(1)).answer
    assert found is not None
    assert found.outcome.value != "AGREE"
