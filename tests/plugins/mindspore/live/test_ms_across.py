"""A gradient that MindSpore 2.10 gets wrong is the first suspect in a comparison with PyTorch, recorded live."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mindspore")
pytest.importorskip("torch")

import mindspore as ms
import torch
from mindspore import Tensor, mint
from probe_pytorch import PrecisionDebugger
from support.on_mindspore.ms_recording import Recording
from support.runs.comparing import compare

from probe_core.model import Level
from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager

ms.runtime.launch_blocking()
X = np.arange(12, dtype=np.float32).reshape(2, 6) / 10
W = (np.arange(36, dtype=np.float32).reshape(6, 6) - 17) / 50
C = np.arange(6, dtype=np.float32)


def program(api: Any, c: Any, *, split: bool) -> Callable[[Any, Any], Any]:
    """Return one program for both frameworks, whose APIs have the same names."""

    def run(x: Any, w: Any) -> Any:
        h = api.matmul(api.tanh(x), w)
        part = api.split(h, 3, dim=-1)[0] if split else api.chunk(h, 2, dim=-1)[0]
        return api.sum(api.mul(api.permute(part, (1, 0)), c))

    return run


def compared(tmp_path: Path, *, split: bool, swapped: bool = False) -> Report:
    recording = Recording(tmp_path / "ms", task="tensor", level="L1")
    recording.start()
    ms.grad(program(mint, Tensor(C.reshape(3, 2)), split=split), (0, 1))(Tensor(X), Tensor(W))
    recording.stop()
    recording.step()
    recording.finish()
    config = tmp_path / "pt.json"
    config.write_text(json.dumps({"dump_path": str(tmp_path / "pt"), "task": "tensor", "level": "L1"}))
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(config_path=str(config))
    debugger.start()
    x, w = (torch.tensor(value, requires_grad=True) for value in (X, W))
    program(torch, torch.tensor(C.reshape(3, 2)), split=split)(x, w).backward()
    debugger.stop()
    debugger.step()
    runs = [tmp_path / "ms", tmp_path / "pt"]
    runs = runs[::-1] if swapped else runs
    (report,) = compare(Plan(*runs, tmp_path / "out", "0", formats=("jsonl",)), Manager())
    return report


@pytest.mark.parametrize("swapped", [False, True], ids=["ms-pt", "pt-ms"])
def test_the_wrong_split_is_named_first_and_alone(swapped: bool, tmp_path: Path) -> None:
    report = compared(tmp_path, split=True, swapped=swapped)
    name = "Torch.split.0.backward" if swapped else "Mint.split.0.backward"
    assert [suspect.op for suspect in report.suspects] == [name]
    assert report.suspects[0].why.startswith("returns values that differ, although its inputs agree (output.0: ")


def test_the_right_program_names_nothing(tmp_path: Path) -> None:
    report = compared(tmp_path, split=False)
    assert not report.suspects and not report.counts.levels[Level.ERROR]
    assert report.counts.matched > 25 and not report.regions
