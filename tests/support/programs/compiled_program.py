"""A program for the tests: trains a compiled net with dropout, recorded or not, and prints what came of it.

    python compiled_program.py NET DIRECTORY MODE

MODE is ``plain``, or what ``compile`` of the configuration says; steps 1 and 2 of four are recorded.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config
import torch.nn.functional as F
from torch import nn


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm, self.drop, self.down = (
            nn.Linear(16, 32), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 16),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(self.drop(torch.tanh(self.norm(self.up(x))))).square().mean()


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.norm(self.first(x.view(-1, 1, 4, 4))))
        return self.last(x.mean((2, 3))).square().mean()


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.mixed = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 48)
        self.out, self.drop = nn.Linear(16, 11, bias=False), nn.Dropout(0.1)
        self.out.weight = self.words.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = (x.abs() * 5).long().clamp(max=10)
        h = self.words(words)
        q, k, v = self.mixed(self.norm(h)).chunk(3, dim=-1)
        h = h + self.drop(F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0])
        return F.cross_entropy(self.out(h).flatten(0, 1), words.flatten())


NETS = {"perceptron": Perceptron, "convolutions": Convolutions, "attention": Attention}


def digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def main() -> None:
    net, directory, mode = sys.argv[1:]
    torch.set_num_threads(1)  # several add up the gradient of an embedding in any order
    # believe the processor which instructions it has: torch compiles a program for each, which takes 10 s
    torch._inductor.config.cpp.vec_isa_ok = True
    torch.manual_seed(0)
    model = NETS[net.removesuffix("_autocast")]()
    fast = torch.compile(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    debugger: Any = None
    if mode != "plain":
        from probe_pytorch import PrecisionDebugger

        config = Path(directory) / "config.json"
        config.write_text(
            json.dumps(
                {"task": "statistics", "dump_path": f"{directory}/run", "level": "L0", "step": [1, 2],
                 "statistics": {}, "compile": mode}
            )
        )  # fmt: skip
        debugger = PrecisionDebugger(config_path=config)
    data = torch.Generator().manual_seed(1)
    for _ in range(4):
        if debugger is not None:
            debugger.start(model=fast)
        with torch.autocast("cpu", torch.bfloat16, enabled=net.endswith("_autocast")):
            loss = fast(torch.randn(8, 16, generator=data))
        loss.backward()
        gradients = [p.grad.numpy().tobytes() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        optimizer.zero_grad()
        if debugger is not None:
            debugger.stop()
            debugger.step()
        parameters = [p.detach().numpy().tobytes() for p in model.parameters()]
        stream = torch.get_rng_state().numpy().tobytes()
        print(loss.item().hex(), digest(*gradients), digest(*parameters), digest(stream))


if __name__ == "__main__":
    main()
