"""Monitored trainings within the process of a test."""

from __future__ import annotations

import atexit
import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_check import TrainerMon
from torch import nn

Fault = Callable[[nn.Module, int], None]


def configuration(path: Path, **fields: Any) -> Path:
    """Write a configuration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields))
    return path


@contextmanager
def monitoring(
    output: Path,
    model: Any,
    optimizer: Any,
    *,
    grad_acc_steps: int = 1,
    start_iteration: int = 0,
    **fields: Any,
) -> Iterator[TrainerMon]:
    """Yield a monitor that writes to ``output``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MONITOR_OUTPUT_DIR", str(output))
        monitor = TrainerMon(configuration(output.parent / f"{output.name}.json", **fields))
        monitor.set_monitor(model, grad_acc_steps, optimizer, start_iteration=start_iteration)
        try:
            yield monitor
        finally:
            atexit.unregister(monitor.close)
            monitor.close()


def network() -> nn.Sequential:
    """Return a small network with the same parameters each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def train(output: Path, fault: Fault | None = None, *, steps: int = 3, **fields: Any) -> nn.Module:
    """Train a network with Adam; ``fault`` changes it after the backward pass of each step."""
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with monitoring(output, model, optimizer, **fields):
        for step in range(steps):
            model(torch.randn(16, 4)).square().mean().backward()
            if fault is not None:
                fault(model, step)
            optimizer.step()
            optimizer.zero_grad()
    return model


def run_of(output: Path, rank: int = 0) -> Path:
    """Return the directory of a rank."""
    (directory,) = output.glob(f"*-rank{rank}-*")
    return directory


def rows(output: Path, file: str, rank: int = 0) -> list[dict[str, str]]:
    """Return the rows of a csv."""
    return list(csv.DictReader((run_of(output, rank) / file).read_text("utf-8").splitlines()))


def files(output: Path, task: str, rank: int = 0) -> list[str]:
    """Return the names of the files of a task."""
    return sorted(file.name for file in run_of(output, rank).glob(f"{task}_*.csv"))
