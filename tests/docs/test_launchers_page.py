"""The examples of the page on programs that start their own processes, run as they stand."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import PrecisionDebugger
from support.programs.started import StartedPrograms
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "launchers.md"
TEXT = PAGE.read_text("utf-8")
RECORD, DECORATOR, ACCELERATE, TRANSFORMERS, LIGHTNING, STAGES = blocks(PAGE, "python")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def list_steps(run: str) -> list[str]:
    return sorted(path.name for path in Path(run).glob("step*"))


def test_the_environment_variable_records_a_launcher(tmp_path: Path) -> None:
    programs = StartedPrograms(tmp_path)
    (text,) = blocks(PAGE, "json")
    (command,) = blocks(PAGE, "bash")
    name, value = re.fullmatch(r"(\w+)=(\S+) python launcher.py\n", command).groups()  # type: ignore[union-attr]
    (tmp_path / value).write_text(text)
    (tmp_path / "launcher.py").write_text("import training\ntraining.train()\n")
    ended = programs.start("launcher.py", config=None, **{name: value})
    assert ended.returncode == 0
    shown = next(line for line in TEXT.splitlines() if line.endswith("as rank0"))
    assert ended.stderr.startswith("probe recorded steps 0 to 1 (") and shown.startswith(
        "probe recorded steps 0 to 2 ("
    )
    assert ended.stderr.endswith(f" records) into {tmp_path}/mine\n")
    assert list_steps(str(tmp_path / "mine")) == ["step0", "step1"]


def test_a_block_is_recorded(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    exec(RECORD, {})
    shown = next(line for line in TEXT.splitlines() if line.startswith("probe recorded") and "rank" not in line)
    printed = capsys.readouterr().err.replace(str(here), "/home/me")
    assert re.sub(r"\(\d+", "(", printed) == re.sub(r"\(\d+", "(", f"{shown}\n")  # the number depends on torch


def test_a_function_is_recorded(here: Path) -> None:
    exec(DECORATOR, {})
    names = json.loads((here / "mine_loss/step0/rank/dump.json").read_text())["data"]
    assert "Tensor.square.0.forward" in names


def test_accelerate_is_recorded(here: Path) -> None:
    pytest.importorskip("accelerate")
    exec(ACCELERATE, {})
    assert list_steps("mine_accelerate") == ["step0", "step1"]


def test_transformers_is_recorded(here: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.LlamaConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
    )
    arguments = transformers.TrainingArguments("out", max_steps=4, report_to=[], use_cpu=True, save_strategy="no")
    names: dict[str, Any] = {"model": transformers.LlamaForCausalLM(config), "arguments": arguments}
    names["data"] = [{"input_ids": torch.arange(4), "labels": torch.arange(4)}] * 32
    exec(TRANSFORMERS, names)
    assert list_steps("mine") == ["step0", "step1", "step2"]


def test_lightning_is_recorded(here: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.net(batch).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    exec(LIGHTNING, {"model": Model(), "loader": torch.utils.data.DataLoader(torch.ones(8, 4), 2)})
    assert list_steps("mine") == ["step0", "step1", "step2"]


def test_stages_are_recorded_and_compared(here: Path, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    names: dict[str, Any] = {}
    exec(STAGES, names)
    names["debugger"]._finish()
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    listed = re.findall(r"^(mine_stages/\S+)$", TEXT, re.MULTILINE)
    assert sorted(path.as_posix() for path in Path("mine_stages").rglob("dump.json")) == listed
    actor = json.loads(Path(listed[0]).read_text())["data"]
    assert "Functional.linear.0.backward" in actor  # in the continued stage
    assert probe("compare", "mine_stages", "mine_stages", "-o", "out") == 0
    assert (here / "out/step0/actor").is_dir()
    assert probe("compare", "mine_stages/step0/actor", "mine_stages/step0/actor", "-o", "out") == 0
