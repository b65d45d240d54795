"""``record``: a block of code and a function that are recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import probe_pytorch
import pytest
import torch
from probe_recording.recorder.recorded_block import create_block_config
from probe_recording.settings.config import ConfigWarning
from torch import nn

from probe_core.errors import UserError


class Training:
    """A training of two steps."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.losses: list[float] = []

    def run(self) -> None:
        for step in range(2):
            self.optimizer.zero_grad()
            loss = self.model(torch.ones(2, 3) * (step + 1)).sum()
            loss.backward()
            self.optimizer.step()
            self.losses.append(float(loss.detach()))


def read_names(directory: Path) -> list[str]:
    return list(json.loads((directory / "rank/dump.json").read_text())["data"])


def list_steps(run: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in run.rglob("dump.json"))


def test_a_block_is_recorded_by_steps_of_its_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unrecorded, training = Training(), Training()
    unrecorded.run()
    with probe_pytorch.record(tmp_path / "run", training.model) as block:
        training.run()
    assert training.losses == unrecorded.losses
    assert all(map(torch.equal, training.model.parameters(), unrecorded.model.parameters()))
    assert block.path == tmp_path / "run" and list_steps(tmp_path / "run") == ["step0", "step1"]
    assert [name for name in read_names(tmp_path / "run/step1") if "0.Linear.forward" in name] == [
        "Module.0.Linear.forward.0"
    ]
    count = sum(len(read_names(tmp_path / "run" / f"step{step}")) for step in (0, 1))
    assert capsys.readouterr().err == f"probe recorded steps 0 to 1 ({count} records) into {tmp_path}/run\n"
    assert not list((tmp_path / "run").glob(".*"))  # no lock is left


def test_a_second_block_continues(tmp_path: Path) -> None:
    training, block = Training(), probe_pytorch.record(tmp_path / "run")
    for _ in range(2):
        with block:
            training.run()
    assert list_steps(tmp_path / "run") == ["step0", "step1", "step2", "step3"]
    assert "Module.0.Linear.forward.0" in read_names(tmp_path / "run/step3")  # the model was found


def test_a_decorated_function_is_recorded(tmp_path: Path) -> None:
    @probe_pytorch.record(tmp_path / "run", level="L1", list=["relu"], stage="actor", step="1,4")
    def compute(value: int) -> float:
        return float(torch.relu(torch.ones(2) * value).sum())

    assert compute(2) == 4.0 and list_steps(tmp_path) == []
    with probe_pytorch.record(tmp_path / "run", level="L1", list=["relu"], stage="actor"):
        compute.__wrapped__(2)  # type: ignore[attr-defined]
    (file,) = (tmp_path / "run").rglob("dump.json")
    assert file.parent == tmp_path / "run/step0/actor/rank"
    assert list(json.loads(file.read_text())["data"]) == ["Torch.relu.0.forward"]


def test_an_exception_leaves_the_records(tmp_path: Path) -> None:
    training = Training()
    with pytest.raises(KeyError), probe_pytorch.record(tmp_path / "run", training.model):
        training.model(torch.ones(1, 3))
        raise KeyError
    assert "Module.2.Linear.forward.0" in read_names(tmp_path / "run/step0")


def test_a_configuration_gives_the_settings(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"dump_path": str(tmp_path / "run"), "level": "L0", "rank": [0]}))
    training = Training()
    with probe_pytorch.record(tmp_path / "config.json", training.model, task="structure"):
        training.model(torch.ones(1, 3))
    assert all(name.startswith("Module") for name in read_names(tmp_path / "run/step0"))
    with pytest.raises(UserError, match="list cannot be given together with a configuration"):
        probe_pytorch.record(tmp_path / "config.json", list=["relu"])


def test_wrong_arguments_are_refused(tmp_path: Path) -> None:
    wrong: Any = "mix"
    with pytest.raises(UserError, match=r"needs a torch\.nn\.Module after the path, not str"):
        probe_pytorch.record(tmp_path, wrong)
    with pytest.raises(UserError, match='"level" must be one of'):
        probe_pytorch.record(tmp_path, level="L9")
    with pytest.warns(ConfigWarning, match='unknown field "lst"'):
        probe_pytorch.record(tmp_path, lst=["relu"])
    block = probe_pytorch.record(tmp_path / "run")
    with block, pytest.raises(UserError, match="running already"), block:
        pass


def test_fields_of_the_task_are_those_of_its_section(tmp_path: Path) -> None:
    config = create_block_config(tmp_path, "L1", {"task": "tensor", "data_mode": ["forward"], "step": 3})
    assert (config.task, config.level, config.directions, config.steps) == ("tensor", "L1", {"forward"}, {3})
    with pytest.raises(UserError, match="grad_probe"):
        create_block_config(tmp_path, "L1", {"task": "grad_probe", "stage": "actor"})
