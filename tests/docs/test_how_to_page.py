"""The settings and scripts of the page of goals; test_commands.py runs its other commands."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "how-to.md"
SCRIPT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1), nn.Linear(3, 3))
        self.rest, self.lm_head = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.lm_head(self.layers(self.rest(x)))

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    (model(torch.randn(2, 3)) / 0).sum().backward()
    optimizer.step()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script to train, and a process in which nothing was recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.parametrize("number", range(len(blocks(PAGE, "json"))))
def test_the_settings_record_what_they_promise(number: int, here: Path, probe: Any) -> None:
    settings = blocks(PAGE, "json")[number]
    (here / "config.json").write_text(settings)
    (line,) = (line for line in commands("probe run") if "--config" in line)
    assert probe(*shlex.split(line)[1:]) == 0, probe.err
    rank = here / "mine" / "step0" / "rank"
    data = json.loads((rank / "dump.json").read_text())["data"]
    if number == 0:
        modules = {name.split(".forward")[0] for name in data if name.startswith("Module") and "forward" in name}
        assert modules == {"Module.layers.0.Linear", "Module.lm_head.Linear"}
    elif number == 1:
        assert len(data) > 10 and not (here / "mine" / "step1").exists()
        named = [name for name, call in data.items() if "data_name" in json.dumps(call)]
        assert named and all("softmax" in name.lower() for name in named)
    else:
        assert next(iter(data)).startswith("Tensor.__truediv__")


def test_the_steps_that_are_asked_for_are_recorded(here: Path, probe: Any) -> None:
    (line,) = (line for line in commands("probe run") if "--step" in line and "--send-to" not in line)
    assert probe(*shlex.split(line)[1:]) == 0, probe.err
    assert [path.name for path in (here / "mine").glob("step*")] == ["step0"]  # the script has two


def test_the_scripts_run(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save, read = blocks(PAGE, "python")
    exec(compile(save, PAGE.name, "exec"), {})
    record = json.loads((here / "mine" / "step0" / "rank" / "debug.json").read_text())["data"]
    assert record["state.0.debug"]["step"] == {"type": "int", "value": 5}
    assert torch.ones(3).norm().item() == pytest.approx(record["state.0.debug"]["scale"]["Norm"])
    (here / "out").mkdir()
    cause = {"op": "Torch.exp.0.forward", "statement": "returns values that differ", "where": "train.py"}
    (here / "out" / "answer_20260101000000.json").write_text(json.dumps({"verdict": "DIVERGED", "causes": [cause]}))
    exec(compile(read, PAGE.name, "exec"), {})
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "DIVERGED", "Torch.exp.0.forward returns values that differ train.py",
    ]  # fmt: skip


def commands(start: str) -> list[str]:
    """The commands of the page that begin in one way."""
    return [line for block in blocks(PAGE, "bash") for line in block.splitlines() if line.startswith(start)]
