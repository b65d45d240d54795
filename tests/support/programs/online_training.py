"""A training of two ranks on the stand-in device, whose calls are sent or recorded, and the check of its dumps.

    RANK=0 WORLD_SIZE=2 python online_training.py train CONFIG MEETING FAULTS
    python online_training.py check npu|cpu OUT FAULTS DUMP…

``train`` runs three steps of a small LLaMA-like net under the recorder that ``CONFIG`` describes. ``check`` writes
the details of the pre-check of each dump on a device into ``OUT/0``, ``OUT/1``, … ``FAULTS`` are names of operators
that are broken on the device, with commas between them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from support.standins import standin_npu

WIDTH, HEADS, WORDS, LENGTH, BATCH, STEPS = 16, 2, 24, 6, 2, 3
FLOOR = -0.1

FAULTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "softmax": ("aten::_softmax", lambda x, dim, half: torch._softmax(x, dim, half) * 1.03),
    "maximum": ("aten::maximum", lambda x, y: torch.where(x > y, x, y * 1.5)),
    "reciprocal": ("aten::reciprocal", lambda x: 1.0005 / x),
}
"""Operators and what computes their result wrongly: of three parties, of two by equality, of two by a limit."""


class Norm(nn.Module):
    """The root mean square norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return torch.mul(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5), self.weight)


class Block(nn.Module):
    """Attention with rotated queries and keys, and a gated network."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = Norm(), Norm()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.gate, self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, later: Tensor) -> Tensor:
        def heads(projection: nn.Module) -> Tensor:
            return projection(normed).view(BATCH, LENGTH, HEADS, -1).transpose(1, 2)  # type: ignore[no-any-return]

        def rotated(y: Tensor) -> Tensor:
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat([torch.neg(second), first], -1) * sin

        normed = self.before(x)
        scores = torch.matmul(rotated(heads(self.query)), rotated(heads(self.key)).transpose(-2, -1))
        shares = F.softmax(scores.masked_fill(later, float("-inf")) / 2.8, dim=-1)
        x = x + self.out(torch.matmul(shares, heads(self.value)).transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        normed = self.between(x)
        gate = torch.maximum(F.silu(self.gate(normed)), torch.full_like(x[..., :1], FLOOR))
        return x + self.down(gate * self.up(normed))


class Net(nn.Module):
    """Two blocks, one of them in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.first, self.second = Block(), Block().to(torch.bfloat16)
        self.norm = Norm()
        angles = torch.outer(torch.arange(LENGTH), 1 / 100 ** (torch.arange(0, 1, 0.25)))
        self.angles = nn.Buffer(torch.cat([angles, angles], -1))
        self.later = nn.Buffer(torch.ones(LENGTH, LENGTH).triu(1).bool())

    def forward(self, words: Tensor) -> Tensor:
        cos, sin = torch.cos(self.angles), torch.sin(self.angles)
        x = self.first(self.words(words), cos, sin, self.later)
        half = torch.bfloat16
        x = self.second(x.to(half), cos.to(half), sin.to(half), self.later).float()
        return torch.matmul(self.norm(x), self.words.weight.t())


def broken(names: str) -> contextlib.ExitStack:
    """Break operators of the device until the stack is closed."""
    stack = contextlib.ExitStack()
    for name in filter(None, names.split(",")):
        stack.enter_context(standin_npu.fault(*FAULTS[name]))
    return stack


def train(config: str, meeting: str, faults: str) -> None:
    """Train three steps, and print a number that every bit of the parameters goes into."""
    from probe_pytorch import PrecisionDebugger, seed_all

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = standin_npu.install()
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world)
    seed_all(1234)
    model = Net().to(device)
    torch.manual_seed(rank)  # other words on each rank
    batches = [torch.randint(0, WORDS, (BATCH, LENGTH)).to(device) for _ in range(STEPS)]
    debugger = PrecisionDebugger(config)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, foreach=False)
    with broken(faults if rank == world - 1 else ""):
        for words in batches:
            debugger.start(model)
            logits = model(words)
            loss = F.cross_entropy(logits.flatten(0, 1), words.flatten())
            loss = loss + 1e-2 * torch.reciprocal(torch.logsumexp(logits, -1)).mean()
            loss.backward()
            debugger.stop()
            for parameter in model.parameters():
                assert parameter.grad is not None
                shared = parameter.grad.cpu()
                dist.all_reduce(shared)
                parameter.grad.copy_((shared / world).to(device))
            optimizer.step()
            optimizer.zero_grad()
            debugger.step()
    bits = [parameter.detach().cpu().float().flatten().double() for parameter in model.parameters()]
    print(f"parameters {torch.cat(bits).sum().item().hex()}")
    dist.destroy_process_group()


def check(device: str, out: Path, faults: str, dumps: list[Path]) -> None:
    """Write the details of the first stage of each dump, with operators broken for the last rank's."""
    from probe_precheck.api import RunnerOptions
    from probe_precheck.assignment import Assignment
    from probe_precheck.calls import RecordedCalls, require_arguments
    from probe_precheck.checking import create_status_rule, run_call
    from probe_precheck.judging import CallJudge
    from probe_precheck.results import CheckFiles
    from probe_precheck.settings import Settings
    from probe_precheck.tables import DETAILS
    from probe_pytorch.precheck.runner import PyTorchRunner

    from probe_core.flow.opening import open_run
    from probe_core.plugins.manager import Manager

    if device == "npu":
        standin_npu.install()
        torch.npu.set_compile_mode = lambda jit_compile: None  # type: ignore[attr-defined]
        sys.modules["torch_npu"] = types.ModuleType("torch_npu")
    manager = Manager()
    judge = CallJudge(create_status_rule(manager, "pytorch"), Assignment(manager, "guide"))
    for place, dump in enumerate(dumps):
        runner = PyTorchRunner()
        runner.open(RunnerOptions(dump, "0" if device == "npu" else device))
        calls = RecordedCalls(require_arguments(open_run(manager, dump)))
        files = CheckFiles.create(out / str(place), "20260101000000", DETAILS, "zh", 14)
        with broken(faults if device == "npu" and dump.parent.name == "rank1" else ""):
            for index in range(len(calls)):
                call = calls.get_call(index, Settings())
                files.append(judge.judge_call(call, run_call(runner, call)))
        files.close()


def main(what: str, *arguments: str) -> None:
    torch.set_num_threads(1)
    if what == "train":
        train(*arguments)
    else:
        device, out, faults, *dumps = arguments
        check(device, Path(out), faults, [Path(dump) for dump in dumps])


if __name__ == "__main__":
    main(*sys.argv[1:])
