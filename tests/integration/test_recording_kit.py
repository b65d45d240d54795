"""The recording kit: what it loads, and what it offers to authors of recorders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

COMMAND_LINE = ("click", "pluggy", "probe_core.cli", "probe_core.plugins.manager")

IMPORTING = "from probe_pytorch import PrecisionDebugger, seed_all"
RECORDING = """
from probe_pytorch import PrecisionDebugger
import torch
model = torch.nn.Sequential(torch.nn.Linear(2, 2))
debugger = PrecisionDebugger(dump_path={path!r}, task="tensor", level="mix", step=[0])
for step in range(2):
    debugger.start(model=model)
    model(torch.ones(2, 2)).sum().backward()
    debugger.stop()
    debugger.step()
"""


@pytest.mark.parametrize("program", ["import probe_pytorch", "import probe_recording", IMPORTING, RECORDING])
def test_recording_loads_no_command_line(program: str, tmp_path: Path) -> None:
    """A training pays neither for click nor for the plugins, and its messages need neither."""
    code = f"{program.format(path=str(tmp_path))}\nimport sys\nassert not {COMMAND_LINE} & sys.modules.keys()"
    code = code.replace(str(COMMAND_LINE), str(set(COMMAND_LINE)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if program is RECORDING:
        assert (tmp_path / "step0/rank/dump.json").is_file()
        assert done.stderr == "probe: the last step to record is over; the program goes on unrecorded.\n"
