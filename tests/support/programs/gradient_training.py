"""Trainings whose gradients are observed by the task grad_probe, of probe or of msprobe.

``python gradient_training.py PACKAGE CONFIG PROGRAM`` runs one with the debugger of PACKAGE, such as
``msprobe.pytorch``. All numbers of ``training`` are multiples of powers of two with few bits, so its gradients
have the same bits whatever the kernels.
"""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any

import torch
from torch import nn

STEPS = 4
FLIPPED_STEP = 2


def _dyadic(*shape: int, factor: int = 7) -> torch.Tensor:
    count = math.prod(shape)
    return ((torch.arange(count) * factor % 5 - 2) / 4).reshape(shape)


def training(debugger: Any, *, is_flipped: bool = False) -> None:
    """Train two layers; from step 2 on, flip the signs of a gradient if ``is_flipped`` is set."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.copy_(_dyadic(*parameter.shape, factor=7 + 4 * number))
    optimizer = torch.optim.SGD(model.parameters(), lr=1 / 4)
    debugger.monitor(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        inputs = _dyadic(4, 6, factor=step + 2) * 4
        (model(inputs) * _dyadic(4, 3, factor=3) * 4).sum().div(4).backward()
        if is_flipped and step >= FLIPPED_STEP:
            gradient = model[2].weight.grad
            assert gradient is not None
            gradient.neg_()
        optimizer.step()


def kinds(debugger: Any) -> None:
    """Step once over gradients of all kinds that msprobe can write."""
    nan, inf = math.nan, math.inf
    model = nn.Module()

    def add(name: str, values: Any, dtype: torch.dtype = torch.float32) -> nn.Parameter:
        gradient = torch.tensor(values, dtype=dtype)
        parameter = nn.Parameter(torch.zeros_like(gradient))
        parameter.grad = gradient
        model.register_parameter(name, parameter)
        return parameter

    add("plain", [1.0, -2.0, 0.0, -0.0, 0.5, 0.25])
    add("matrix", [[1.5, -0.5, 0.125], [-1.0, 2.0, 0.0]])
    add("strided", [[1.0, -2.0, 4.0], [0.25, 8.0, -16.0]]).grad = torch.tensor(
        [[1.0, 0.25], [-2.0, 8.0], [4.0, -16.0]]
    ).t()
    add("scalar", 0.25)
    add("zero", [0.0, 0.0])
    add("tiny", [1e-30, -2e-30])
    add("huge", [1e30, -2e30])
    add("infinite", [1.0, inf, -inf])
    add("undefined", [1.0, nan, 0.0])
    add("fp16", [1.0, -2.0, 0.0, 0.1, 0.3], torch.float16)
    add("fp16_large", [60000.0, 60000.0], torch.float16)
    add("bf16", [1.0, -2.0, 0.0, 0.1, 0.3], torch.bfloat16)
    add("fp64", [1.0, -2.0, 0.1], torch.float64)
    add("fp64_large", [1.0, 1e300], torch.float64)
    add("without", [1.0]).grad = None
    with_main: Any = add("main", [1.0])
    with_main.main_grad = torch.tensor([3.0])
    without_main: Any = add("main_is_none", [1.0])
    without_main.main_grad = None
    only_main: Any = add("only_main", [1.0])
    only_main.grad, only_main.main_grad = None, torch.tensor([5.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    debugger.monitor(model)
    optimizer.step()


PROGRAMS = {
    "training": training,
    "flipped": lambda debugger: training(debugger, is_flipped=True),
    "kinds": kinds,
}

if __name__ == "__main__":
    PROGRAMS[sys.argv[3]](importlib.import_module(sys.argv[1]).PrecisionDebugger(sys.argv[2]))
