"""Claims of the page on recording against a golden, run."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch import PrecisionDebugger
from probe_recording.diff_check.call_judge import MAX_CALLS_APART, MAX_UNPAIRED_CALLS
from probe_recording.diff_check.call_stream import LOOK_AHEAD, MAX_WAITING_CALLS
from probe_recording.diff_check.held_tensors import MAX_COPIED_BYTES, MAX_UNREAD_RECORDS
from probe_recording.settings.diff_check_settings import DEFAULT_CALL_COUNT
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "against.md"
SCRIPT = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    result = model(torch.randn(5, 8))
    if "--fast" in sys.argv:
        result = result * 1.01
    nn.functional.mse_loss(result, torch.zeros(5, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the script."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


@pytest.mark.usefixtures("place")
def test_the_commands_and_what_they_print(probe: Any) -> None:
    first, second = blocks(PAGE, "bash")
    for line in first.splitlines():
        assert probe(*shlex.split(line)[1:]) == 0
    (shown,) = blocks(PAGE, "text")
    assert probe.err.splitlines()[-len(shown.splitlines()) :] == shown.splitlines()
    for line in second.splitlines():
        assert line in shown or "explain" in line
        assert probe(*shlex.split(line)[1:]) == 0
    assert "computed again" in probe.out


@pytest.mark.usefixtures("place")
def test_the_configuration(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    (config,) = blocks(PAGE, "json")
    golden = {"task": "statistics", "dump_path": "golden", "level": "mix"}
    model, weight = torch.nn.Linear(2, 2), torch.ones(2, 2)
    for text, scale in ((json.dumps(golden), 1.0), (config, 2.0)):
        Path("config.json").write_text(text)
        monkeypatch.setattr(PrecisionDebugger, "_instance", None)
        debugger = PrecisionDebugger("config.json", model=model)
        with debugger:
            torch.tanh(weight * scale)
        debugger._recorder.finish()
    assert "2 calls differ from golden and keep their tensors" in capsys.readouterr().err


def test_the_numbers() -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    for number, sentence in (
        (DEFAULT_CALL_COUNT, "{} by default"),
        (LOOK_AHEAD, "first of the next {} calls"),
        (MAX_WAITING_CALLS, "after {} waiting calls"),
        (MAX_CALLS_APART, "one of the {} calls that follow"),
        (MAX_UNPAIRED_CALLS, "at most {} are kept for each call"),
        (MAX_UNREAD_RECORDS, "up to {} records at once"),
        (MAX_COPIED_BYTES >> 30, "at most {} GiB"),
    ):
        assert sentence.format(number) in text
