"""The walks of the page on the online pre-check: a receiver and a training, by options and by config.json."""

from __future__ import annotations

import json
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support import ROOT
from support.programs.preloaded import PreloadedPopen

PAGE = (ROOT / "docs" / "online.md").read_text("utf-8")
TRAINING = """
import torch
from torch.nn import functional as F
torch.manual_seed(0)
x = torch.randn(6, 5)
F.softmax(torch.matmul(x, torch.randn(5, 4)), -1).sum()
"""
WITH_DEBUGGER = """
from probe_pytorch import PrecisionDebugger
debugger = PrecisionDebugger("config.json")
debugger.start()
{}
debugger.stop()
debugger.step()
"""
LIMIT = 120


def commands(heading: str) -> list[str]:
    """Return the commands in a section of the page."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return [
        line for block in re.findall(r"```bash\n(.*?)```", section, re.DOTALL) for line in block.splitlines()
    ]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def start(line: str, here: Path, **changes: str) -> Any:
    for old, new in changes.items():
        line = line.replace(old, new)
    line = re.sub(r"^probe ", f"{shlex.quote(sys.executable)} -m probe_core.cli ", line)
    return PreloadedPopen(
        shlex.split(line), cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def both(receiver: str, training: str, here: Path, changes: dict[str, str]) -> str:
    """Run both ends; return the receiver's first line."""
    (here / "train.py").write_text(TRAINING)
    found = start(receiver, here, **{"-d 0 1": "-d cpu", **changes})
    sender = start(training, here, **changes)
    try:
        said = sender.communicate(timeout=LIMIT)[1]
        assert sender.returncode == 0, said
        printed, problems = found.communicate(timeout=LIMIT)
        assert found.returncode == 0, (printed, problems, said)
    finally:
        found.kill()
        sender.kill()
    return str(printed.splitlines()[0])


@pytest.mark.parametrize("heading", ["In a network", "With a shared directory"])
def test_both_ends_by_options(heading: str, tmp_path: Path) -> None:
    shared = tmp_path / "calls"
    shared.mkdir()
    receiver, training = commands(heading)[:2]
    first = both(receiver, training, tmp_path, {"6006": str(free_port()), "/shared/calls": str(shared)})
    assert first == "probe: no call of 3 judged is in error"
    assert list((tmp_path / "checked").glob("api_precision_compare_result_*_rank0.csv"))


@pytest.mark.parametrize("is_shared", [False, True])
def test_both_ends_by_the_configurations_of_the_guide(is_shared: bool, tmp_path: Path) -> None:
    (line,) = [line for line in commands("In a network") if "-config" in line]
    shared = tmp_path / "calls"
    shared.mkdir()
    place = {
        "nfs_path": str(shared) if is_shared else "",
        "host": "127.0.0.1",
        "port": free_port(),
        "tls_path": "",
    }
    receiver = {
        "white_list": [],
        "black_list": [],
        "error_data_path": "./",
        "is_online": True,
        "rank_list": [0],
    }
    sender = {
        "scope": [],
        "list": [],
        "data_mode": ["all"],
        "online_run_ut": True,
        "online_run_ut_recompute": False,
    }
    checking, training = tmp_path / "gpu", tmp_path / "npu"
    for here, config in (
        (checking, {"task": "run_ut", "run_ut": {**receiver, **place}}),
        (training, {"task": "tensor", "level": "L1", "dump_path": str(training / "dump"), "rank": [], "step": [],
                    "tensor": {**sender, **place}}),
    ):  # fmt: skip
        here.mkdir()
        (here / "config.json").write_text(json.dumps(config))
    (training / "train.py").write_text(WITH_DEBUGGER.format(TRAINING))
    found = start(f"{line} -d cpu", checking)
    time.sleep(0.5)
    trained = start("probe", training, probe=f"{shlex.quote(sys.executable)} train.py")
    try:
        said = trained.communicate(timeout=LIMIT)[1]
        assert trained.returncode == 0, said
        printed, problems = found.communicate(timeout=LIMIT)
        assert found.returncode == 0, (printed, problems, said)
    finally:
        found.kill()
        trained.kill()
    assert printed.splitlines()[0] == "probe: no call of 3 judged is in error"
    assert ("PLAIN TEXT" in problems) is not is_shared
    assert list(checking.glob("api_precision_compare_details_*_rank0.csv"))
