"""Calls whose results are exact on every machine, for free_benchmark of probe and of msprobe.

    python free_benchmark_calls.py SECTION.json DUMP_PATH    # records them with msprobe

Sums, products and quotients are chosen so that no kernel can round them in another order.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

BACKWARD = ["asin", "mul", "div", "pow", "matmul", "dropout", "chunk", "relu", "sqrt"]
"""The field ``list`` of the cases that examine backward calls."""


def exact(*shape: int) -> torch.Tensor:
    """Return different multiples of 1/64 of both signs."""
    count = 1
    for size in shape:
        count *= size
    return ((torch.arange(count) * 37 % 101) - 50.5).reshape(shape) / 64


def forward_calls() -> None:
    """Call functions of all kinds of inputs and outputs."""
    x, near = exact(4, 8), 1 + exact(4, 8) * 2**-12
    halves = exact(4, 8).half(), exact(4, 8).bfloat16()
    torch.sub(near, 1)
    torch.sub(near.double() * 2**0.5, 2**0.5)
    torch.prod(torch.tensor([1.1e-4, 1.1e-4, 1.1e-4, 2.0**13, 2.0**13, 2.0**13]))
    for half in halves:
        torch.mul(half * 0.02, 3)
        torch.sub(half, -0.2115)  # near to an element, and rounded to the dtype
        torch.sub(half.abs() / 2 + 1, 0.5002)  # all results are too large by 0.0002 in float16
        torch.sub(half.abs() / 2 + 1, 0.5003)  # all results are too small by 0.0002
    torch.sort(x[0])
    torch.topk(x, 2)
    torch.chunk(x, 2)
    torch.cat([x[0], x[1]])
    torch.where(x > 0, x, -x)
    torch.mul(input=x, other=2)
    torch.mul(2, x)
    torch.mul(torch.arange(6).reshape(2, 3), exact(2, 3))
    F.relu(x.t())
    F.relu(x[:, ::2])
    for empty in (torch.zeros(0), torch.zeros(2, 0, 3), torch.tensor(2.5), torch.tensor([1.5])):
        torch.neg(empty)
    torch.mul(torch.tensor([1.0, float("nan"), 2.0, -3.0]), 2)
    torch.mul(torch.tensor([1.0, float("inf"), 2.0, 3.0]), 2)
    torch.mul(torch.tensor([1.0, 2.0, 3.0, float("nan")]), 2)
    torch.argsort(x[0])
    F.dropout(x, 0.5)
    y = x * 2
    y.mul_(3)


def backward_calls() -> None:
    """Call functions and run their backward passes."""
    x, w = exact(4, 8).requires_grad_(), (exact(4, 8) + 2).requires_grad_()
    close = (1 - 2**-20 * (1 + torch.arange(8.0))).requires_grad_()
    halves = [(exact(8) * 0.9).to(dtype).requires_grad_() for dtype in (torch.float16, torch.bfloat16)]
    loss = torch.asin(close).sum()
    for half in halves:
        loss = loss + torch.asin(half).float().sum()
    loss = loss + torch.mul(x, w).sum() + torch.div(x, w).sum() + torch.pow(x, 2).sum()
    eye = torch.eye(8).requires_grad_()
    loss = loss + torch.matmul(x, eye).sum() + torch.matmul(eye, eye).sum()
    loss = loss + F.dropout(w, 0.5).sum() + torch.sqrt(w).sum() + F.relu(x).sum()
    first, second = torch.chunk(x, 2)
    loss = loss + (first * 3).sum() + (second * 5).sum()
    loss.backward()


def preheated_calls(step: int) -> None:
    """Call functions whose reaction depends on the step."""
    for number in range(3):
        half = (exact(4, 8) * (1 + step / 8) + number).half()
        torch.sub(half, float(half[0, 1]) + 0.0003)
        torch.mul(half, 1.5)
        torch.sub(1 + exact(4, 8) * 2 ** -(8 + number + step), 1)


def run(debugger: Any, stage: str, steps: int) -> None:
    """Run the calls under a debugger.

    Args:
        debugger: The debugger.
        stage: ``forward`` or ``backward``.
        steps: The number of steps; if there are several, those calls that depend on the step.
    """
    torch.manual_seed(0)
    for step in range(steps):
        debugger.start()
        if steps > 1:
            preheated_calls(step)
        elif stage == "forward":
            forward_calls()
        else:
            backward_calls()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]

    torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:29733", rank=0, world_size=1)
    section = json.loads(Path(sys.argv[1]).read_text())
    config = {"task": "free_benchmark", "dump_path": sys.argv[2], "rank": [], "step": [], "level": "L1"}
    path = Path(f"{sys.argv[2]}.config.json")
    path.write_text(json.dumps({**config, "free_benchmark": section}))
    run(PrecisionDebugger(config_path=str(path)), section["fuzz_stage"], 8 if section["if_preheat"] else 1)
