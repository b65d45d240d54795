"""Calls written by hand and run by the pre-check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.precheck.execution import CallSide

from support.runs.prechecked import Prechecked, call, leaf, written
from support.runs.recorded import forward


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(7)


@pytest.fixture
def bare(tmp_path: Path) -> Prechecked:
    """Return a runner of calls that are written by hand."""
    return written(tmp_path / "bare", {"Torch.neg.0.forward": forward(leaf(torch.ones(2)))})


def put(calls: Prechecked, name: str, *arguments: Any, **keywords: Any) -> str:
    """Add a call."""
    calls.calls[name] = call(name, *arguments, **keywords)
    return name


def needing(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def side(*needs: bool) -> CallSide:
    """A side whose outputs, of shape (1,), (2,) and so on, need a gradient or not."""
    outputs = [torch.ones(i + 1).requires_grad_(one) for i, one in enumerate(needs)]
    return CallSide([], {}, output=outputs)
