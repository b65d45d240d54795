"""With a reference, a fault between two calls is named although the golden is less precise elsewhere."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.double import run_in_double_precision
from support.runs.recording import recording
from torch import nn


class Layer(nn.Module):
    """A layer whose golden computes a difference that cancels."""

    def __init__(self, *, is_golden: bool) -> None:
        super().__init__()
        self.is_golden = is_golden

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input, with the rounding of large numbers in the golden."""
        return (x + 300) - 300 if self.is_golden else x * 1


def train(path: Path, *, is_golden: bool, factor: float = 1.0, double: bool = False) -> Path:
    """Record two steps, whose gradients are scaled where no recorder sees it."""
    with run_in_double_precision() if double else nullcontext(), recording(path, level="L0", task="tensor") as run:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 8), Layer(is_golden=is_golden), nn.Tanh(), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            run.start(model)
            model(torch.randn(4, 8)).pow(2).mean().backward()
            for parameter in model.parameters():
                values = parameter.grad.numpy()  # type: ignore[union-attr]
                values *= factor
            optimizer.step()
            optimizer.zero_grad()
            run.stop()
            run.step()
    return path


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_a_fault_between_calls_is_named(factor: float, tmp_path: Path, probe: Any) -> None:
    golden = train(tmp_path / "g", is_golden=True)
    target = train(tmp_path / "t", is_golden=False, factor=factor)
    third = train(tmp_path / "r", is_golden=True, double=True)
    arguments = ["compare", target, golden, "-o", tmp_path / "out", "--format", "csv", "--jobs", "2"]
    assert probe(*arguments) == 0
    assert probe.out.startswith("DIVERGED") or factor == 1.0, probe.out
    assert probe(*arguments, "--reference", third) == 0, probe.err
    if factor == 1.0:
        assert probe.out.startswith("AGREE: where they differ, the target is at least as near"), probe.out
    else:
        assert probe.out.startswith("DIVERGED: in step0, the phases of the step show: gradients agree"), probe.out
        assert "all 4 are 2 times the golden's" in probe.out
