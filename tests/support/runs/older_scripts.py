"""Scripts that were written for the older tools, run in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.programs.preloaded import run

NET = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(3, 4)

    def forward(self, x):
        return self.head(self.blocks(x).mean((2, 3)))

def made(fault=False):
    torch.manual_seed(7)
    net = Net()
    if fault:
        with torch.no_grad():
            net.blocks[1].conv.weight.mul_(-0.7)
    return net

torch.manual_seed(8)
x, labels = torch.randn(2, 3, 5, 5), torch.tensor([1, 3])
def step(net):
    nn.CrossEntropyLoss()(net(x), labels).backward()
"""
"""A small residual net, and a step of it; its one fault is a weight."""


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """A function that runs a script in a process of its own, and returns what it printed."""

    def script(code: str, *arguments: str) -> str:
        file = tmp_path / "script.py"
        file.write_text(code)
        done = run(
            [sys.executable, str(file), *arguments],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert done.returncode == 0, done.stdout.decode()
        return str(done.stdout.decode())

    return script
