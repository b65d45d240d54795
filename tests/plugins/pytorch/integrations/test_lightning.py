"""The callback for Lightning's Trainer: losses are bit-equal, and steps are those of the optimizer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

lightning = pytest.importorskip("lightning.pytorch")

TWO_PROCESSES = """
import os, sys
from pathlib import Path
from probe_pytorch.integrations.lightning import ProbeCallback
from test_lightning import train

name = sys.argv[1]
results = train([ProbeCallback("run")] if name == "recorded" else [], devices=2, strategy="ddp")
Path(f"{name}{os.environ['LOCAL_RANK']}").write_text(str(results))
"""


def train(
    callbacks: list[Any], max_steps: int = 2, save: Path | None = None, resume: Path | None = None, **options: Any
) -> Any:
    """Train a small model with accumulated gradients and validations; return its losses and parameters."""

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.3), nn.Linear(4, 1))
            self.losses: list[float] = []

        def training_step(self, batch: Any, number: int) -> Any:
            loss = self.net(batch).pow(2).mean()
            self.losses.append(loss.item())
            return loss

        def validation_step(self, batch: Any, number: int) -> None:
            self.net(batch)

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=0.05)

    lightning.seed_everything(1, verbose=False)
    model = Model()
    values: Any = torch.arange(96.0).reshape(24, 4) / 96
    data: Any = torch.utils.data.DataLoader(values, 2)
    trainer = lightning.Trainer(
        max_steps=max_steps, accumulate_grad_batches=2, callbacks=callbacks, logger=False, val_check_interval=3,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
        **options,
    )  # fmt: skip
    trainer.fit(model, data, data, ckpt_path=resume)
    if save is not None:
        trainer.save_checkpoint(save)
    return model.losses, [parameter.detach().clone() for parameter in model.parameters()]


def test_a_training_is_the_same_and_recorded_by_steps(tmp_path: Path) -> None:
    from probe_pytorch.integrations.lightning import ProbeCallback

    losses, parameters = train([])
    recorded = train([ProbeCallback(tmp_path / "run")], save=tmp_path / "checkpoint")
    assert losses == recorded[0] and all(map(torch.equal, parameters, recorded[1]))
    for step in (0, 1):
        names = json.loads((tmp_path / f"run/step{step}/rank/dump.json").read_text())["data"]
        calls = [name for name in names if name.startswith("Module.net.0.Linear.forward")]
        assert calls == ["Module.net.0.Linear.forward.0", "Module.net.0.Linear.forward.1"]  # no validation
    train([ProbeCallback(tmp_path / "run")], 3, resume=tmp_path / "checkpoint")
    assert sorted(path.name for path in (tmp_path / "run").glob("step*")) == ["step0", "step1", "step2"]


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs gloo")
def test_two_processes_are_the_same_and_recorded_under_their_ranks(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n{TWO_PROCESSES}")
    for name in ("plain", "recorded"):
        subprocess.run([sys.executable, script, name], cwd=tmp_path, check=True, timeout=300)
    for rank in (0, 1):
        assert (tmp_path / f"plain{rank}").read_text() == (tmp_path / f"recorded{rank}").read_text()
    places = sorted(path.parent.relative_to(tmp_path / "run").as_posix() for path in tmp_path.rglob("dump.json"))
    assert places == ["step0/rank0", "step0/rank1", "step1/rank0", "step1/rank1"]
