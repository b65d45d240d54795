"""The recording that callbacks drive, by the events of a training loop."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from probe_pytorch.integrations.step_recording import StepRecording
from torch import nn


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 3), nn.ReLU())


def list_steps(run: Path) -> list[str]:
    return sorted(path.parent.parent.name for path in run.rglob("dump.json"))


def test_steps_hold_what_is_between_start_and_end(tmp_path: Path, model: nn.Module) -> None:
    recording = StepRecording(tmp_path / "run", {"level": "L1"})
    recording.start()  # nothing before begin
    recording.begin(model, 3)
    model(torch.ones(1, 3))
    for _ in range(2):
        recording.start()
        model(torch.ones(1, 3))
        recording.stop()
        model(torch.ones(1, 3))
        recording.start()
        recording.end_step()
    recording.end()
    recording.end()
    assert list_steps(tmp_path / "run") == ["step3", "step4"]
    assert (tmp_path / "run/step3/rank/dump.json").read_text().count("Functional.linear") == 1


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Replace Lightning by a module with the names that the callback uses, whether it is installed or not."""
    module: Any = ModuleType("lightning.pytorch")
    module.Callback, module.Trainer, module.LightningModule = object, object, object
    package = ModuleType("lightning")
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", module)
    monkeypatch.delitem(sys.modules, "probe_pytorch.integrations.lightning", raising=False)
    from probe_pytorch.integrations.lightning import ProbeCallback

    yield ProbeCallback
    sys.modules.pop("probe_pytorch.integrations.lightning", None)


def test_the_callback_of_lightning_follows_its_protocol(tmp_path: Path, model: nn.Module, stand_in: Any) -> None:
    callback, trainer = stand_in(tmp_path / "run", level="L1"), SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, model)
    for number in range(4):  # two batches for each step of the optimizer
        callback.on_train_batch_start(trainer, model, None, number)
        model(torch.ones(1, 3))
        trainer.global_step = (number + 1) // 2
        callback.on_train_batch_end(trainer, model, None, None, number)
        callback.on_validation_start(trainer, model)
        model(torch.ones(1, 3))
    callback.on_exception(trainer, model, KeyError())
    callback.on_train_end(trainer, model)
    assert list_steps(tmp_path / "run") == ["step0", "step1"]
    for step in (0, 1):
        assert (tmp_path / f"run/step{step}/rank/dump.json").read_text().count("Functional.linear") == 2
