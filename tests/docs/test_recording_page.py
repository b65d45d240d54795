"""Claims of README and of the page on recording, run: the three lines, and the script as it is."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from support.runs.recording import recording
from test_pages import ROOT, blocks
from torch import nn

PAGE = ROOT / "docs" / "recording.md"
SCRIPT = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
print(sys.argv[1:])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of one's own, and a process in which nothing was recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    for name in ("PYTHONHASHSEED", "HCCL_DETERMINISTIC", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "")
    (tmp_path / "train.py").write_text(SCRIPT)
    yield tmp_path  # type: ignore[misc]
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("page", [PAGE, ROOT / "README.md"], ids=lambda page: page.name)
def test_the_lines_for_a_script_record_a_run(page: Path, here: Path) -> None:
    (lines,) = [block for block in blocks(page, "python") if "PrecisionDebugger" in block]
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    names = {
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "loader": [torch.randn(2, 4)],
    }
    # where the README has dots, a step is trained
    lines = re.sub(r"^\.\.\. .*$", "model(loader[0]).sum().backward()", lines, flags=re.M)
    exec(compile(lines, page.name, "exec"), names)
    PrecisionDebugger._instance._recorder.finish()  # type: ignore[union-attr]
    records = json.loads((here / "mine/step0/rank/dump.json").read_text())["data"]
    assert {"Module.0.Linear.forward.0", "Functional.linear.0.backward"} <= records.keys()


def test_the_commands_record_and_compare(here: Path, probe: Any) -> None:
    commands = [line for block in blocks(PAGE, "bash") for line in block.splitlines() if line]
    record, compare, double = (shlex.split(line)[1:] for line in commands)
    assert probe(*record) == 0, probe.err
    assert "['--its', 'own', 'arguments']" in probe.out
    assert probe(*["other" if part == "mine" else part for part in record]) == 0
    assert probe(*compare) == 0, probe.err
    assert probe.out.startswith("AGREE: within rounding in all "), probe.out
    assert probe(*double) == 0, probe.err
    records = json.loads((here / "golden_double/step0/rank/dump.json").read_text())["data"]
    assert "torch.float64" in str(records) and "torch.float32" not in str(records)


def test_the_listed_functions_are_recorded(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (lines,) = blocks(PAGE, "yaml")
    (here / "functions.yaml").write_text(lines)
    kernels: Any = ModuleType("my_package.kernels")
    kernels.fused_rope = kernels.fused_swiglu = torch.neg
    monkeypatch.setitem(sys.modules, kernels.__name__, kernels)
    with recording(here / "run", custom_wrap_ops=str(here / "functions.yaml")) as run:
        run.start()
        kernels.fused_rope(torch.ones(1))
        run.stop()
    assert list(run.records()) == [lines.rpartition("# ")[2].strip()]


def test_every_field_of_the_configuration_is_told() -> None:
    from probe_recording.settings.config import ELSEWHERE, SECTION_FIELDS, TOP_FIELDS

    text = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    for name in (TOP_FIELDS | set().union(*SECTION_FIELDS.values())) - ELSEWHERE:
        assert f"`{name}`" in text, name
