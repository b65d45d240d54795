"""The commands of the page on the verdict: a reference in float64 shows that the golden is the wrong one."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_pytorch.debugger import PrecisionDebugger
from test_pages import ROOT, blocks

PAGE = ROOT / "docs" / "diagnosis.md"
SCRIPT = """
import sys, torch
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    x = model(torch.randn(4, 8)) + 300
    if "golden" in sys.argv:
        variance = x.pow(2).mean(-1) - x.mean(-1).pow(2)
    else:
        variance = x.var(-1, unbiased=False)
    (variance + 1).log().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script, and a process in which nothing was recorded."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(PrecisionDebugger, "_instance", None)
    for name in ("PYTHONHASHSEED", "HCCL_DETERMINISTIC", "CUBLAS_WORKSPACE_CONFIG"):
        monkeypatch.setenv(name, "")
    (tmp_path / "train.py").write_text(SCRIPT)
    yield tmp_path  # type: ignore[misc]
    torch.use_deterministic_algorithms(False)


def test_the_commands_show_that_the_golden_is_less_precise(here: Path, probe: Any) -> None:
    (lines,) = blocks(PAGE, "bash")
    double, compare = (shlex.split(line)[1:] for line in lines.splitlines() if line)
    plain = ["run", "--seed", "1234"]
    assert probe(*plain, "-o", "npu_dump", "train.py") == 0, probe.err
    assert probe(*plain, "-o", "golden_dump", "train.py", "golden") == 0, probe.err
    assert probe(*double) == 0, probe.err
    without = [part for part in compare if part not in ("--reference", "golden_double")]
    assert probe(*without) == 0, probe.err
    assert not probe.out.startswith("AGREE"), probe.out
    assert probe(*compare) == 0, probe.err
    assert probe.out.startswith(
        "AGREE: where they differ, the target is at least as near to the reference as the golden ("
    ), probe.out
