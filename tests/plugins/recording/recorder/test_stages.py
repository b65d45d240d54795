"""Stages of a step, each recorded into a directory of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import PrecisionDebugger
from probe_recording.settings.config import ConfigWarning
from probe_recording.testing import record_with
from support.cases import every
from torch import nn

from probe_core.errors import UserError
from probe_core.library import compare


def record_stages(path: Path, factor: float = 1.0, **fields: Any) -> list[torch.Tensor]:
    """Record two steps of an actor and a critic, and return their results."""
    torch.manual_seed(1)
    actor, critic = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), nn.Sequential(nn.Linear(3, 1))
    results = []
    with record_with(PrecisionDebugger, path, level="mix", **fields) as debugger:
        for step in range(2):
            batch = torch.full((2, 3), step + 1.0)
            debugger.start(actor, stage="actor")
            results.append(actor(batch).sum())
            results[-1].backward()
            debugger.start(critic, stage="critic")  # stops the recording of the actor
            results.append(critic(batch * factor).sum())
            debugger.stop()
            debugger.start(actor, stage="actor")
            results.append(actor(batch + 1).sum())
            debugger.stop()
            debugger.step()
    return results


def read_names(directory: Path) -> list[str]:
    return list(json.loads((directory / "dump.json").read_text())["data"])


def test_each_stage_has_its_directories_and_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record_stages(tmp_path / "run")
    places = sorted(path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").glob("*/*/*"))
    assert places == [f"step{step}/{stage}/rank" for step in (0, 1) for stage in ("actor", "critic")]
    assert not list((tmp_path / "run").glob(".*"))
    for step in (0, 1):
        actor = read_names(tmp_path / f"run/step{step}/actor/rank")
        assert [name for name in actor if "linear" in name] == [
            "Functional.linear.0.forward", "Functional.linear.0.backward", "Functional.linear.1.forward"
        ]  # fmt: skip
        critic = read_names(tmp_path / f"run/step{step}/critic/rank")
        assert [name for name in critic if "linear" in name] == ["Functional.linear.0.forward"]
    assert "nothing was recorded" not in capsys.readouterr().err


def test_stages_are_compared_by_name(tmp_path: Path) -> None:
    record_stages(tmp_path / "golden")
    record_stages(tmp_path / "target", factor=1.5)
    result = compare(tmp_path / "target", tmp_path / "golden")
    assert result.answer is not None and "in step0/critic" in result.answer.sentence
    assert {row["step"] for row in result.rows() if row["level"] == "error"} == {"step0/critic", "step1/critic"}


def test_a_new_recording_replaces_its_own_stages(tmp_path: Path) -> None:
    record_stages(tmp_path / "run")
    (tmp_path / "run/step7/actor/rank").mkdir(parents=True)
    (tmp_path / "run/step7/actor/rank/dump.json").write_text('{"probe": {}}')
    (tmp_path / "run/step7/reward/rank").mkdir(parents=True)
    record_stages(tmp_path / "run")
    assert not (tmp_path / "run/step7/actor").exists() and (tmp_path / "run/step7/reward/rank").exists()


def test_results_are_bit_equal_with_stages(tmp_path: Path) -> None:
    recorded, unrecorded = record_stages(tmp_path / "run"), record_stages(tmp_path / "none", rank=[5])
    assert all(map(torch.equal, recorded, unrecorded))


def test_the_stage_of_the_configuration_holds_starts_without_one(tmp_path: Path) -> None:
    with record_with(PrecisionDebugger, tmp_path / "run", stage="reward") as debugger:
        debugger.start()
        torch.ones(2) + 1
        debugger.stop()
        debugger.start(stage="reward")
        torch.ones(2) * 2
        debugger.step()
    assert read_names(tmp_path / "run/step0/reward/rank")[-1] == "Tensor.__mul__.0.forward"


def test_set_init_step_and_custom_functions_reach_later_stages(tmp_path: Path) -> None:
    class Kernels:
        @staticmethod
        def double(value: torch.Tensor) -> torch.Tensor:
            return value * 2

    with record_with(PrecisionDebugger, tmp_path / "run") as debugger:
        debugger.set_init_step(4)
        debugger.register_custom_api(Kernels, "double", "kernels")
        debugger.start(stage="actor")
        Kernels.double(torch.ones(2))
        debugger.step()
        debugger.start(stage="critic")
        Kernels.double(torch.ones(2))
        debugger.step()
        debugger.restore_custom_api(Kernels, "double")
    assert "kernels.double.0.forward" in read_names(tmp_path / "run/step4/actor/rank")
    assert "kernels.double.0.forward" in read_names(tmp_path / "run/step5/critic/rank")


@every("stage", [3, "rank0", "a/b"])
def test_wrong_stages_are_refused(tmp_path: Path, stage: Any) -> None:
    with record_with(PrecisionDebugger, tmp_path / "run") as debugger, pytest.raises(UserError) as caught:
        debugger.start(stage=stage)
    assert "stage" in caught.value.what and caught.value.fix


def test_what_has_no_stages_is_refused(tmp_path: Path) -> None:
    with record_with(PrecisionDebugger, tmp_path / "run", enable_dataloader=True) as debugger:
        with pytest.raises(UserError, match="enable_dataloader cannot be combined with stages"):
            debugger.start(stage="actor")
        with pytest.warns(ConfigWarning):
            debugger.start()
    with (
        pytest.raises(UserError, match='the task "grad_probe" cannot be combined'),
        record_with(PrecisionDebugger, tmp_path / "run", task="grad_probe", stage="actor"),
    ):
        pass
