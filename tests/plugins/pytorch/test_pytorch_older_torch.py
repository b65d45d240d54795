"""The recorder works without the names that older versions of torch lack; ``make.py torch`` runs real versions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from probe_pytorch import compat, statistics
from probe_pytorch.statistics import measure
from support.programs import preloaded

from probe_core.errors import UserError

PROGRAM = """
import torch
import torch.utils._pytree

for holder, names in ((torch, ("uint16", "uint32", "uint64", "jagged")), (torch.library, ("custom_op",)),
                      (torch.utils._pytree, ("tree_leaves",))):
    for name in names:
        if hasattr(holder, name):
            delattr(holder, name)

from probe_pytorch import PrecisionDebugger, statistics

statistics._tally = None
model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 2))
debugger = PrecisionDebugger(dump_path="run", task="statistics", level="mix")
debugger.start(model=model)
model(torch.tensor([0, 1])).sum().backward()
debugger.stop()
debugger.step()
"""
"""Records with a torch that lacks what version 2.1 lacks, and without the compiled extension."""


def test_recording_without_the_names_that_torch_2_1_lacks(tmp_path: Path) -> None:
    done = preloaded.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Module.1.Linear.forward.0" in next(tmp_path.rglob("dump.json")).read_text("utf-8")


def test_half_precision_is_measured_without_aminmax_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    aminmax = torch.aminmax

    def only_wide(tensor: torch.Tensor) -> object:
        if tensor.dtype is torch.float16:
            raise RuntimeError("\"aminmax_cpu\" not implemented for 'Half'")
        return aminmax(tensor)

    monkeypatch.setattr(torch, "aminmax", only_wide)
    monkeypatch.setattr(statistics, "_tally", None)
    assert measure(torch.tensor([3.0, -4.0], dtype=torch.float16)) == (3.0, -4.0, -0.5, 5.0)


def test_tap_is_refused_without_custom_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.library, "custom_op", raising=False)
    with pytest.raises(UserError, match=r"torch 2\.4 or later") as refused:
        compat.register_tap(lambda tensor, name: None)
    assert refused.value.fix == 'Set "compile": "eager".'
    compat.register_tap(None)
