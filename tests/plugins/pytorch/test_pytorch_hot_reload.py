"""Changes of the configuration file while the program runs, which take effect with the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs.recording import Recording, recording
from torch import nn
from torch.nn import functional as F

X = torch.arange(24, dtype=torch.float32).reshape(6, 4)


def change(found: Recording, **fields: Any) -> None:
    file = found.path.with_name(found.path.name + ".config.json")
    file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))


def run_step(found: Recording, model: nn.Module | None = None) -> None:
    found.start(model)
    F.relu(X if model is None else model(X))
    found.stop()
    found.step()


def test_task_level_and_list_change_with_the_next_step(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        run_step(found, model)
        change(found, level="L0")
        run_step(found, model)
        change(found, level="L1", task="tensor", tensor={"list": ["relu"]})
        run_step(found, model)
        change(found, step=[4])
        run_step(found, model)
        run_step(found, model)
    assert list(found.records(0)) == [
        "Functional.linear.0.forward", "Torch.tanh.0.forward", "Functional.relu.0.forward",
    ]  # fmt: skip
    assert {"Module.0.Linear.forward.0", "Module.1.Tanh.forward.0"} <= found.records(1).keys()
    assert not any(name.startswith("Functional") for name in found.records(1))
    assert list(found.records(2)) == ["Functional.relu.0.forward"]
    assert found.head(2)["task"] == "tensor" and (found.directory(2) / "dump_tensor_data").exists()
    assert not found.directory(3).exists() and list(found.records(4)) == ["Functional.relu.0.forward"]


def test_a_change_within_a_step_waits_for_the_next_step(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        found.start()
        F.relu(X)
        found.stop()
        change(found, statistics={"list": ["tanh"]})
        found.start()
        F.relu(X)
        found.stop()
        found.step()
        found.start()
        F.relu(X)
        torch.tanh(X)
        found.stop()
        found.step()
    assert list(found.records(0)) == ["Functional.relu.0.forward", "Functional.relu.1.forward"]
    assert list(found.records(1)) == ["Torch.tanh.0.forward"]


def test_an_invalid_file_pauses_the_recording_with_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        run_step(found)
        change(found, level="L9")
        run_step(found)
        run_step(found)
        change(found, level="L1")
        run_step(found)
    assert [step for step in range(4) if found.directory(step).exists()] == [0, 3]
    assert capsys.readouterr().err.count('"level" must be one of the choices below') == 1


def test_a_level_that_needs_a_model_does_not_end_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        run_step(found)
        change(found, level="mix")
        run_step(found)
        change(found, level="L1")
        run_step(found)
    assert [step for step in range(3) if found.directory(step).exists()] == [0, 2]
    assert "start() needs the model" in capsys.readouterr().err


def test_functions_of_the_user_stay_registered(tmp_path: Path) -> None:
    class Holder:
        @staticmethod
        def double(x: torch.Tensor) -> torch.Tensor:
            return x * 2

    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        found.debugger.register_custom_api(Holder, "double", "Mine")
        for _ in range(2):
            found.start()
            Holder.double(X)
            found.stop()
            found.step()
            change(found, statistics={"list": ["double"]})
        found.debugger.restore_custom_api(Holder, "double")
        found.start()
        Holder.double(X)
        found.stop()
        found.step()
    assert "Mine.double.0.forward" in found.records(0)
    assert list(found.records(1)) == ["Mine.double.0.forward"]
    assert not found.records(2)


def test_a_comparison_with_a_golden_is_reported_before_its_settings_change(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with recording(tmp_path / "golden", level="L1") as golden:
        run_step(golden)
    section = {"bench_path": str(golden.path)}
    with recording(tmp_path / "run", level="L1", dump_enable=True, statistics=section) as found:
        found.start()
        F.relu(X + 1)
        found.stop()
        found.step()
        change(found, statistics={})
        run_step(found)
    assert capsys.readouterr().err.count("keeps its tensors") == 1


def test_a_changed_dump_path_begins_another_run(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        run_step(found)
        change(found, dump_path=str(tmp_path / "later"))
        run_step(found)
    assert found.directory(0).exists() and not found.directory(1).exists()
    assert (tmp_path / "later" / "step1" / "rank" / "dump.json").exists()


def test_a_reload_leaves_the_random_state_alone(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True, seed=5) as found:
        first = torch.rand(1)
        run_step(found)
        change(found, level="L1", statistics={"list": ["relu"]})
        run_step(found)
        assert not torch.equal(torch.rand(1), first)


def test_without_dump_enable_the_file_is_not_read_again(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1") as found:
        run_step(found)
        change(found, statistics={"list": ["tanh"]})
        run_step(found)
    assert list(found.records(1)) == ["Functional.relu.0.forward"]


def test_a_task_of_a_plugin_can_follow(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        run_step(found, model)
        change(found, task="free_benchmark", free_benchmark={})
        run_step(found, model)
        change(found, task="statistics")
        run_step(found, model)
    assert [step for step in range(3) if (found.directory(step) / "dump.json").exists()] == [0, 2]


def test_stages_follow_a_changed_file(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", dump_enable=True) as found:
        for _ in range(2):
            for stage in ("actor", "critic"):
                found.debugger.start(stage=stage)
                F.relu(X)
                torch.tanh(X)
                found.stop()
            found.step()
            change(found, statistics={"list": ["tanh"]})
    for stage in ("actor", "critic"):
        labels = [f"{stage}/rank", f"{stage}/rank"]
        first, second = (json.loads((found.directory(n, labels[n]) / "dump.json").read_text())["data"] for n in (0, 1))
        assert len(first) == 2 and list(second) == ["Torch.tanh.0.forward"]
