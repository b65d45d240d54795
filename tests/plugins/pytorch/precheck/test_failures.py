"""A call of which one direction fails: the other is judged all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from probe_pytorch.precheck.runner import PyTorchRunner
from support.runs.prechecked import PASS, SKIP, Prechecked, live


class Fails(torch.autograd.Function):
    """tanh, whose backward has no kernel."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("no kernel for the backward of tanh")


def test_a_backward_that_fails_costs_no_forward(tmp_path: Path) -> None:
    def program() -> None:
        torch.tanh(torch.linspace(-1, 1, 8, requires_grad=True)).sum().backward()

    found = live(tmp_path, program)
    assert found["Torch.tanh.0"].statuses == (PASS, PASS)
    dump = next(tmp_path.rglob("dump.json"))
    checked = Prechecked(dump, PyTorchRunner(instead={"Torch.tanh": Fails.apply}))["Torch.tanh.0"]
    assert checked.statuses == (PASS, SKIP)
    assert "no kernel for the backward of tanh" in checked.text
