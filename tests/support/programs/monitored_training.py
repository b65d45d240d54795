"""Trainings that are monitored by TrainerMon, of probe or of msprobe.

``python monitored_training.py PACKAGE OUTPUT CASE`` runs one with the monitor of PACKAGE, such as
``msprobe.pytorch``, and writes to OUTPUT/CASE.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

ALL_OPERATIONS = ["norm", "min", "max", "mean", "zeros", "nans"]
EVERYTHING: dict[str, Any] = {
    "targets": {}, "param_distribution": True, "wg_distribution": True, "xy_distribution": True,
    "all_xy": True, "mv_distribution": True, "mg_direction": True, "ops": ALL_OPERATIONS,
}  # fmt: skip
TURBULENCE = {"rule_name": "AnomalyTurbulence", "args": {"threshold": 0.5}}
NOT_A_NUMBER = {"rule_name": "AnomalyNan", "args": {"threshold": 100}}


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 6)
        self.norm = nn.LayerNorm(6)
        self.down = nn.Linear(6, 4, bias=False)

    def forward(self, x: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        hidden = torch.relu(self.norm(self.up(x)))
        return x + self.down(hidden if scale is None else hidden * scale)


class Model(nn.Module):
    """Two blocks and a head, as the parts of a larger model are called."""

    def __init__(self) -> None:
        super().__init__()
        self.module = nn.ModuleDict({"layers": nn.ModuleList([Block(), Block()]), "head": nn.Linear(4, 1)})

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = self.module["layers"]  # type: ignore[misc]
        x = second(first(x), scale=torch.ones(6))
        return self.module["head"](x), x


class Attention(nn.Module):
    """An attention that is called with query and key of four dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.core = Core()
        self.projection = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        projected = self.projection(x)
        length, batch, _ = projected.shape
        heads = projected.view(length, batch, 2, 4)
        result: torch.Tensor = self.core(heads, heads * 2)
        return result


class Core(nn.Module):
    """The product of query and key."""

    def forward(self, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (query * key).sum()


def start(package: str, config: dict[str, Any], model: Any, optimizer: Any, **others: Any) -> Any:
    """Start a monitor whose configuration is next to its output."""
    output = Path(os.environ["MONITOR_OUTPUT_DIR"])
    output.mkdir(parents=True, exist_ok=True)
    path = output / "config.json"
    path.write_text(json.dumps(config))
    monitor = importlib.import_module(package).TrainerMon(str(path), params_have_main_grad=False)
    monitor.set_monitor(model, **{"grad_acc_steps": 1, "optimizer": optimizer, **others})
    return monitor


def train(
    package: str,
    config: dict[str, Any],
    *,
    steps: int = 3,
    micro_steps: int = 2,
    scales: dict[int, float] | None = None,
    **others: Any,
) -> None:
    """Train the model; the loss of some steps is scaled."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    start(package, config, model, optimizer, grad_acc_steps=micro_steps, **others)
    for step in range(steps):
        for _ in range(micro_steps):
            output, _ = model(torch.randn(3, 4))
            (output.square().mean() * (scales or {}).get(step, 1.0)).backward()
        optimizer.step()
        optimizer.zero_grad()


def kinds(package: str, config: dict[str, Any]) -> None:
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
    add("strided", [[1.0, -2.0], [0.25, 8.0]]).grad = torch.tensor([[1.0, -2.0], [0.25, 8.0]]).T
    add("scalar", 3.5)
    add("empty", [])
    add("with_nan", [1.0, nan, -1.0, nan])
    add("with_inf", [1.0, -inf, inf])
    add("tiny", [1e-30, 1e-12, 1e-9, 2e-8])
    add("large", [3e38, -3e38, 1e20])
    add("fp16", [1.0, 300.0, -6e4, 0.0], torch.float16)
    add("bf16", [1.0, 3.0, -1e38], torch.bfloat16)
    add("fp64", [1 / 3, 2 / 3, -1e150], torch.float64)
    add("fp64_large", [1e200, 1e200], torch.float64)
    add("complex", [1 + 2j, -3j], torch.complex64)
    add("third", [1.0, 0.0, 0.0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    start(package, config, model, optimizer)
    optimizer.step()


def attention(package: str, config: dict[str, Any]) -> None:
    """Train an attention."""
    torch.manual_seed(0)
    model = Attention()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    start(package, config, model, optimizer, grad_acc_steps=2)
    for _ in range(2):
        for _ in range(2):
            model(torch.randn(5, 2, 8)).backward()
        optimizer.step()
        optimizer.zero_grad()


def nan_loss(package: str, config: dict[str, Any]) -> None:
    """Train with a loss that is NaN in the last step."""
    train(package, config, steps=4, micro_steps=1, scales={2: 50.0, 3: math.nan})


CASES: dict[str, tuple[dict[str, Any], Callable[..., None], dict[str, Any]]] = {
    "everything": (EVERYTHING, train, {}),
    "micro_batches": (
        {"wg_distribution": True, "monitor_mbs_grad": True, "ops": ALL_OPERATIONS, "squash_name": False},
        train,
        {},
    ),
    "kinds": ({"wg_distribution": True, "ops": ALL_OPERATIONS, "ndigits": 12, "eps": 1e-10}, kinds, {}),
    "targets": (
        {
            "targets": {"layers.1": {"input": "tuple[2]:0", "output": "tensor"}, "module.head": {}},
            "xy_distribution": True, "wg_distribution": True, "param_distribution": True,
        },
        train,
        {},
    ),
    "forward_only": ({"xy_distribution": True, "forward_only": True, "ops": ["max", "shape"]}, train, {}),
    "backward_only": ({"xy_distribution": True, "backward_only": True}, train, {"micro_steps": 1}),
    "steps": (
        {
            "wg_distribution": True, "param_distribution": True, "start_step": 12, "step_interval": 2,
            "collect_times": 3, "step_count_per_record": 4,
        },
        train,
        {"steps": 10, "start_iteration": 10},
    ),
    "attention": (
        {"recording_l2_features": True, "l2_targets": {"attention_hook": ["0:core"]}, "sa_order": "s,b,h,d"},
        attention,
        {},
    ),
    "attention_of_batches": (
        {"recording_l2_features": True, "l2_targets": {"attention_hook": ["0:core"]}, "sa_order": "b,s,h,d"},
        attention,
        {},
    ),
    "alerts": (
        {
            "wg_distribution": True, "ops": ["norm", "mean", "max"],
            "alert": {"rules": [TURBULENCE, NOT_A_NUMBER], "dump": True},
        },
        nan_loss,
        {},
    ),
}  # fmt: skip


def run(package: str, output: Path, case: str) -> None:
    """Run a case; its files are in ``output/case``."""
    config, function, arguments = CASES[case]
    os.environ["MONITOR_OUTPUT_DIR"] = str(output / case)
    torch.set_num_threads(1)
    function(package, json.loads(json.dumps(config)), **arguments)


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
