"""Programs recorded by ``PrecisionDebugger``, and their records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from torch import Tensor, nn
from torch.nn import functional as F

from support.runs.recording import Recording, recording


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A test that fails leaves no debugger and no mode to the next one."""
    yield
    if PrecisionDebugger._instance is not None:
        PrecisionDebugger._instance._recorder.finish()
        PrecisionDebugger._instance = None
    while torch._C._len_torch_function_stack():
        torch._C._pop_torch_function_stack()


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x))


def net() -> Net:
    torch.manual_seed(0)
    return Net()


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def train(model: nn.Module, x: Tensor = X) -> None:
    model(x).square().sum().backward()


def once(path: Path, work: Callable[[], Any], model: Any = None, **fields: Any) -> Recording:
    """One step in which ``work`` is done, recorded."""
    with recording(path, **fields) as found:
        found.start(model)
        work()
        found.stop()
        found.step()
    return found


def saved(found: Recording, step: int = 0, name: str = "dump.json") -> dict[str, np.ndarray[Any, Any]]:
    """The data of every tensor that the records name."""
    run = PyTorchReader().open(found.directory(step) / name)
    values = [slot.value for record in run.records() for slot in record.slots if slot.value.data_name]
    return {str(value.data_name): np.array(run.tensor(value)) for value in values}


# -- gradients, exactly -----------------------------------------------------------------------------


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
