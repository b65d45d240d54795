"""The moment before, on the page of watches: its command, its code, and the numbers that it states."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_recording.keeping.band import load_band_rule
from probe_recording.keeping.event import Cause, NoRise
from probe_recording.keeping.options import DEFAULT_BYTES, DEFAULT_EVENT_COUNT
from probe_recording.keeping.readings import QuantityKind
from probe_recording.keeping.watched_values import MAX_OBSERVED_LOSSES
from test_pages import ROOT, blocks
from torch import nn

PAGE = ROOT / "docs" / "watch.md"
SCRIPT = """
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(103):
    batch = torch.randn(8, 8) * (1000 if step == 100 else 1)
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def test_the_command_writes_the_steps_before_a_spike(here: Path, probe: Any) -> None:
    (command,) = [line for block in blocks(PAGE, "bash") for line in block.splitlines() if "--keep-last" in line]
    assert probe(*shlex.split(command)[1:]) == 0, probe.err
    said = [line for line in probe.err.splitlines() if line.startswith("probe: ")]
    assert "the loss rose to" in said[0] and "Rose first: the data, input.0 (of the model), in step 100" in said[0]
    assert said[1] == "probe: steps 91 to 100 can be read in moment."
    assert {path.name for path in here.glob("moment/step*")} == {f"step{step}" for step in range(91, 101)}
    event = json.loads((here / "moment/step100/rank/watch.json").read_text())["events"][0]
    text = PAGE.read_text("utf-8")
    assert all(f"`{key}`" in text for key in event) and all(f"`{key}`" in text for key in event["first"])
    assert probe("compare", "moment/step99", "moment/step100", "-o", "out") == 0, probe.err
    assert probe.out.startswith("DIVERGED"), probe.out


def names(model: nn.Module) -> dict[str, Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train_step(batch: torch.Tensor) -> float:
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10)
    loader = [torch.randn(2, 4), torch.full((2, 4), math.nan)]
    return {
        "model": model, "optimizer": optimizer, "loader": loader, "train_step": train_step, "scheduler": scheduler,
        "probe_pytorch": __import__("probe_pytorch"),
    }  # fmt: skip


@pytest.mark.parametrize("number", [0, 1])
def test_the_code_writes_the_steps_before_a_nan(number: int, here: Path, probe: Any) -> None:
    codes = [code for code in blocks(PAGE, "python") if "probe_pytorch.watch(" in code]
    known = names(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    exec(compile(codes[number], PAGE.name, "exec"), known)
    known["watch"].finish()
    event = json.loads((here / "probe-watch/step1/rank/watch.json").read_text())["events"][0]
    assert event["first"]["kind"] == "data" and event["steps"] == [0, 1]
    if number:
        assert probe("explain", "probe-watch/rerun") == 0, probe.err


def test_the_code_for_mindspore_is_python() -> None:
    """It runs where MindSpore is, in tests/plugins/mindspore/live/test_ms_watch.py."""
    (code,) = [code for code in blocks(PAGE, "python") if "probe_mindspore.watch(" in code]
    compile(code, PAGE.name, "exec")


def test_the_page_states_the_numbers_of_the_rule() -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    rule = load_band_rule()
    needed = rule.level_steps + rule.least_steps
    for part in (
        f"the median of the last {rule.level_steps} values", f"the last {rule.window_steps} distances",
        f"{rule.excess_factor} times the largest distance upward and {rule.mad_factor} times the median",
        f"at least {rule.smallest_rise['loss']} times the level for a loss, {rule.smallest_rise['gradient_norm']} times",
        f"by the same rule with a factor of {rule.smallest_rise['size']}", f"before {needed} values are known",
        f"after {rule.least_steps} of them in a row", f"changed by a factor of {rule.setting_factor} or more",
        f"{DEFAULT_EVENT_COUNT} unless it is given", f"{DEFAULT_BYTES >> 20} MiB unless it is given",
        f"Each of up to {MAX_OBSERVED_LOSSES} losses",
    ):  # fmt: skip
        assert part in text, part
    for kind in (*Cause, *NoRise, *QuantityKind):
        assert f"`{kind.value}`" in text, kind
