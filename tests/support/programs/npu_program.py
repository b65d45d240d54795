"""A training step recorded on a device: ``npu_program.py cpu|npu OUT [FAULT]``; npu is the stand-in."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import torch
import torch.nn.functional as F
from probe_pytorch import PrecisionDebugger, seed_all
from torch import nn
from torch.utils.checkpoint import checkpoint

from support.standins import standin_npu

FAULTS: dict[str, Any] = {
    "gelu": lambda: standin_npu.fault("aten::gelu", lambda x, approximate="none": F.gelu(x, approximate="tanh")),
    "layer_norm": lambda: standin_npu.fault(
        "aten::native_layer_norm",
        lambda x, shape, weight, bias, eps: torch.native_layer_norm(x, shape, weight, bias, eps * 300),
    ),
    "addmm": lambda: standin_npu.slow_precision("aten::addmm", torch.bfloat16),
    "gelu_backward": lambda: standin_npu.fault(
        "aten::gelu_backward", lambda grad, x, approximate="none": grad * (x > 0)
    ),
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(32, 16), nn.LayerNorm(32)
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 32)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.norm(self.up(self.embed(words)))
        return self.down(checkpoint(lambda x: F.gelu(torch.sigmoid(x) * x), hidden, use_reentrant=False))


def main(device: str, out: str, fault: str = "") -> None:
    if device == "npu":
        standin_npu.install()
    seed_all(1234)
    model = Net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    words = torch.randint(0, 32, (4, 8)).to(device)
    debugger = PrecisionDebugger(dump_path=out, task="tensor", level="mix")
    with FAULTS[fault]() if fault else contextlib.nullcontext():
        debugger.start(model=model)
        loss = F.cross_entropy(model(words).flatten(0, 1), words.flatten())
        loss.backward()
        optimizer.step()
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
