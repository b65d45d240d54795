"""A wrong operator of a device, found by the comparison with the CPU; the device is a stand-in, not an NPU."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest
import torch
from probe_watch.free_benchmark.table import FILE
from support.programs.preloaded import run

TESTS = Path(__file__).resolve().parents[3]
PROGRAM = """
import json, sys, torch
import torch.nn.functional as F
from support.standins.standin_npu import fault, install
from probe_pytorch import PrecisionDebugger

device, path, faulty = install(), sys.argv[1], sys.argv[2] == "faulty"
config = {"task": "free_benchmark", "dump_path": path,
          "free_benchmark": {"fuzz_device": "cpu", "pert_mode": "to_cpu"}}
json.dump(config, open(path + ".json", "w"))
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 2))
model.to(device)
debugger = PrecisionDebugger(path + ".json")
wrong = (lambda x, approximate="none": F.gelu(x, approximate="tanh")) if faulty else F.gelu
for step in range(2):
    with fault("aten::gelu", wrong):
        debugger.start()
        model(torch.randn(4, 8).to(device)).sum().backward()
        debugger.stop()
        debugger.step()
"""

pytestmark = pytest.mark.skipif(torch.__version__.split(".")[:2] != ["2", "13"], reason="the stand-in needs torch 2.13")


@pytest.mark.parametrize("kind", ["faulty", "right"])
def test_a_wrong_operator_of_a_device_is_reported(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    done = run([sys.executable, "-c", PROGRAM, str(path), kind], cwd=TESTS, capture_output=True, text=True,
               env={"PYTHONPATH": str(TESTS), "PATH": ""})  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = []
    for table in sorted(path.glob(f"step*/rank/{FILE}")):
        with table.open(newline="") as file:
            rows += [(row["step"], row["api_name"], row["max_rel"]) for row in csv.DictReader(file)]
    name = "Functional.gelu.0.forward"
    assert rows == ([("0", name, ""), ("1", name, "")] if kind == "faulty" else [])
    assert "Functional.dropout not examined" in done.stderr
