"""``enable_dataloader``: a step is what happens between two batches, and the script's own start counts nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from probe_recording.settings.config import ConfigWarning
from support.runs.recording import recording
from torch import nn
from torch.utils.data import DataLoader


@pytest.mark.parametrize("workers", [0, 1])
def test_steps_by_batches(tmp_path: Path, workers: int) -> None:
    model = nn.Sequential(nn.Linear(4, 2))
    iterate = DataLoader.__iter__
    with recording(tmp_path / "run", level="mix", enable_dataloader=True, step=["0-1"]) as found:
        found.debugger._model = model
        seen = []
        for batch in DataLoader(torch.arange(24.0).view(6, 4), batch_size=2, num_workers=workers):
            seen.append(batch)
            model(batch).sum().backward()
        found.debugger._batches.remove()
    assert torch.equal(torch.cat(seen), torch.arange(24.0).view(6, 4))
    assert [path.name for path in sorted(found.path.glob("step*"))] == ["step0", "step1"]
    for step in range(2):
        leaf = found.records(step)["Module.0.Linear.forward.0"]["input_args"][0]
        assert leaf["Max"] == 7.0 + 8 * step
    assert DataLoader.__iter__ is iterate


def test_the_scripts_own_start_is_left_aside(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L1", enable_dataloader=True) as found:
        with pytest.warns(ConfigWarning, match="enable_dataloader"):
            found.start()
        torch.ones(2) + 1
        found.stop()
        found.step()
        found.debugger._batches.remove()
    assert not found.directory().exists()
