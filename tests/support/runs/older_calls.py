"""The calls of the two older tools in tests: each tool as in a fresh process, and the programs of the dumps."""

from __future__ import annotations

import atexit
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from probe_legacy import hooks as hooks_module
from probe_legacy import ptdbg as ptdbg_module
from probe_legacy.calls import comparing, dumping, values

from support.runs.older_net import Conv

Row = list[Any]


@pytest.fixture
def ptdbg(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The calls of ptdbg_ascend, of which none was made yet."""
    yield from _fresh(ptdbg_module, dumping.PtdbgRecording(), monkeypatch)


@pytest.fixture
def hooks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The calls of torch_npu.hooks, of which none was made yet."""
    yield from _fresh(hooks_module, values.HooksRecording(), monkeypatch)


def _fresh(module: Any, state: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setattr(module, "_dumping", state)
    monkeypatch.setattr(comparing, "before", [state.flush])
    yield module
    state.finish()
    atexit.unregister(state.finish)


class Branch(torch.nn.Module):
    """The model of the dumps whose two sides differ; this is the bench's side."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 6)
        self.b = torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.sigmoid(torch.abs(torch.relu(self.a(x))))
        x = torch.mul(torch.cat([x, x], 1), 2.0)[:, :6]
        cosine = torch.cos(x)
        x = torch.exp(x) + cosine
        return F.softmax(self.b(x), dim=-1).pow(2).sum()


def rows_of(path: Path) -> list[Row]:
    """The rows of a dump."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def load_weights(model: torch.nn.Module, arrays: dict[str, Any]) -> None:
    """Give a model the weights of a dump, by the names of its modules."""
    with torch.no_grad():
        for name, (weight, bias) in arrays.items():
            module = getattr(model, name)
            module.weight.copy_(torch.from_numpy(np.array(weight)))
            module.bias.copy_(torch.from_numpy(np.array(bias)))


def step_of_conv(x: Any, gradient: Any) -> Callable[[torch.nn.Module], None]:
    """Return the step of the convolutional program, whose labels the gradient of its loss shows."""
    inputs, labels = torch.from_numpy(np.array(x)), torch.from_numpy(np.array(gradient).argmin(1))

    def step(model: torch.nn.Module) -> None:
        F.nll_loss(model(inputs), labels).backward()

    return step


def step_of(arrays: Path) -> Callable[[torch.nn.Module], None]:
    """Return the step of a program whose tensors are in a directory."""
    if not (arrays / "Functional_nll_loss_0_backward_output.0.npy").exists():
        inputs = torch.from_numpy(np.load(arrays / "Functional_linear_0_forward_input.0.npy"))
        return lambda model: model(inputs).backward()
    x, gradient = (
        np.load(arrays / f"Functional_{name}.npy")
        for name in ("conv2d_0_forward_input.0", "nll_loss_0_backward_output.0")
    )
    return step_of_conv(x, gradient)


def conv(arrays: Path) -> Conv:
    """The convolutional model with the weights in a directory."""
    model = Conv()
    names = {"conv1": "conv2d_0", "conv2": "conv2d_1", "fc": "linear_0"}
    load_weights(model, {module: weights(arrays, name) for module, name in names.items()})
    return model


def branch(arrays: Path) -> Branch:
    """The model with two sides, with the weights in a directory."""
    model = Branch()
    load_weights(model, {"a": weights(arrays, "linear_0"), "b": weights(arrays, "linear_1")})
    return model


def weights(arrays: Path, name: str) -> tuple[Any, Any]:
    """The weight and the bias that a call of a dump was given."""
    weight, bias = (np.load(arrays / f"Functional_{name}_forward_input.{place}.npy") for place in (1, 2))
    return weight, bias
