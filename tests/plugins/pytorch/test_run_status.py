from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.programs import preloaded

SCRIPT = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
"""


def status_of(directory: Path, *lines: str) -> tuple[int, dict[str, Any], str]:
    """Record a script that ends with these lines; return its exit code, its status and its messages."""
    (directory / "train.py").write_text("\n".join([SCRIPT, *lines]))
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", "--status", "status", "train.py"]
    done = preloaded.run(command, cwd=directory, capture_output=True, text=True)
    (file,) = (directory / "status").iterdir()
    return done.returncode, json.loads(file.read_text()), done.stderr


@pytest.mark.parametrize("line, expected", [
    ("", {"ended": True, "exit_code": 0, "exception": "", "complete": True, "steps": [0, 1]}),
    ("1 / 0", {"ended": True, "exit_code": 1, "exception": "ZeroDivisionError", "complete": True}),
    ("raise SystemExit(3)", {"ended": True, "exit_code": 3, "exception": "SystemExit", "complete": True}),
    ("import os; os._exit(4)", {"ended": False, "exit_code": 0, "complete": False, "steps": []}),
])  # fmt: skip
def test_the_status_states_how_the_script_ended(line: str, expected: dict[str, Any], tmp_path: Path) -> None:
    code, status, messages = status_of(tmp_path, line)
    assert status == {**status, **expected} and (code == status["exit_code"] or not status["ended"])
    assert "probe compare" not in messages
    text = (ROOT / "docs" / "recording.md").read_text("utf-8")
    assert all(f"`{name}`" in text for name in status)


def test_options_are_stated_in_the_header(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "probe_core.cli", "run", "-o", "run", "--seed", "0", "train.py"]
    assert preloaded.run(command, cwd=tmp_path, capture_output=True).returncode == 0
    head = json.loads((tmp_path / "run/step0/rank/dump.json").read_text())
    assert head["probe"]["settings"] == {"seed": 0}
