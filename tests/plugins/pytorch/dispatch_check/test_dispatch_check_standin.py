"""Wrong operators of a device, in the forward and in the backward; the device is a stand-in, not an NPU.

Backward operators of the device run in a thread of the autograd engine.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.programs.preloaded import run

TESTS = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys, threading, torch
from contextlib import nullcontext
from torch import nn
from torch.nn import functional as F
from support.standins.standin_npu import fault, install
from probe_pytorch import DispatchCheck
from probe_pytorch.dispatch_check.check import WrongOperator

device, path = install(), sys.argv[1]

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
    def forward(self, x):
        return x + F.dropout(self.down(F.gelu(self.up(self.norm(x)))), 0.2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(20, 8), nn.ModuleList([Block(), Block()])
    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return x @ self.words.weight.t()

def trained(wrong, on_error="continue", checks=True, steps=1):
    torch.manual_seed(0)
    net = Net().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    ids = torch.randint(20, (2, 4)).to(device)
    with (fault(*wrong) if wrong else nullcontext()):
        check = DispatchCheck(path, on_error=on_error) if checks else None
        with check or nullcontext():
            for _ in range(steps):
                optimizer.zero_grad()
                F.cross_entropy(net(ids).flatten(0, 1), ids.flatten()).backward()
                optimizer.step()
    return check, [p.detach().cpu().numpy().tobytes().hex() for p in net.parameters()]

def told(check):
    return [[f.name, f.phase, f.forward, f.origin.module, f.operator] for f in check.findings]

aten = torch.ops.aten
forward = ("aten::gelu", lambda x, approximate="none": F.gelu(x, approximate="tanh"))
backward = ("aten::gelu_backward", lambda g, x, approximate="none": aten.gelu_backward(g, x, approximate="tanh"))
words = ("aten::embedding_dense_backward", lambda *a: aten.embedding_dense_backward(*a) * 1.01)
check, parameters = trained(None, steps=2)
found = {"right": told(check), "forward": told(trained(forward)[0]),
         "backward": told(trained(backward)[0]), "words": told(trained(words)[0])}
found["same"] = parameters == trained(None, checks=False, steps=2)[1]
found["skipped"] = sorted({reason.value for reason, _ in check.counts.skipped})
found["compared"] = check.counts.compared
for name, wrong in (("raised", forward), ("raised later", backward)):
    try:
        trained(wrong, "raise")
    except WrongOperator as error:
        found[name] = error.finding.name
print(json.dumps(found))
"""

pytestmark = pytest.mark.skipif(torch.__version__.split(".")[:2] != ["2", "13"], reason="the stand-in needs torch 2.13")


def test_wrong_operators_of_a_device_are_named_and_right_ones_raise_nothing(tmp_path: Path) -> None:
    done = run([sys.executable, "-c", PROGRAM, str(tmp_path)], cwd=TESTS, capture_output=True, text=True,
               env={"PYTHONPATH": str(TESTS), "PATH": "", "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert found["forward"] == [
        ["Aten.gelu.0", "forward", "", "layers.0", "aten.gelu.default"],
        ["Aten.gelu.1", "forward", "", "layers.1", "aten.gelu.default"],
    ]
    operator = "aten.gelu_backward.default"
    assert found["backward"] == [
        ["Aten.gelu_backward.0", "backward", "Aten.gelu.1", "layers.1", operator],
        ["Aten.gelu_backward.1", "backward", "Aten.gelu.0", "layers.0", operator],
    ]
    operator = "aten.embedding_dense_backward.default"
    assert found["words"] == [["Aten.embedding_dense_backward.0", "backward", "Aten.embedding.0", "words", operator]]
    assert found["right"] == [] and found["compared"] > 100
    assert not {"failed", "not_computed", "no_cpu_kernel"} & set(found["skipped"])
    assert found["same"], "the program has other results than without the check"
    assert found["raised"] == "Aten.gelu.0" and found["raised later"] == "Aten.gelu_backward.0"
