"""Programs whose recordings are killed or fill the disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from probe_pytorch.reader import PyTorchReader
from probe_recording.recorder.recorder_state import RecorderState
from torch import nn

from support import TESTS
from support.programs.preloaded import PreloadedPopen


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    """A test that fails leaves no debugger to the next one."""
    yield
    instance, PrecisionDebugger._instance = PrecisionDebugger._instance, None
    if instance is not None:
        instance._recorder._control.remove()
        instance._recorder._states.state = RecorderState.FINISHED
        instance._recorder._sessions.claim.release()


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.Sequential(nn.ReLU(), nn.LayerNorm(16)), nn.Linear(16, 4))


def train(model: nn.Module, number: int = 0) -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(number))
    model(x).square().sum().backward()


def leaves(tree: Any) -> Iterator[dict[str, Any]]:
    """The tensor leaves of records."""
    if isinstance(tree, dict) and "dtype" in tree and "shape" in tree:
        yield tree
    elif isinstance(tree, (dict, list)):
        for item in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(item)


def read(directory: Path, summed: bool = True) -> dict[str, np.ndarray[Any, Any]]:
    """All tensors that the records of a directory name; raises where anything is wrong with one.

    ``summed``: gradients of parameters, which are saved anew at each backward pass, must fit as well.
    """
    records = json.loads((directory / "dump.json").read_text())["data"]
    run = PyTorchReader().open(directory / "dump.json")
    values = [slot.value for record in run.records() for slot in record.slots if slot.value.data_name]
    data = {str(value.data_name): np.array(run.tensor(value)) for value in values}
    for leaf in leaves(records):
        if not summed and ".parameters_grad." in leaf.get("data_name", ""):
            continue
        if "data_name" in leaf and data[leaf["data_name"]].size and "complex" not in leaf["dtype"]:
            assert data[leaf["data_name"]].max() == np.float32(leaf["Max"]), leaf["data_name"]
    run.close()
    return data


def start_python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """A process that runs code, with pipes to talk to it."""
    return PreloadedPopen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


# -- what is written --------------------------------------------------------------------------------


FILES = {"dump.json", "stack.json", "construct.json"}
