"""Scripts written for torch_npu.hooks run with only the import line changed, and give their tables."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from support.runs.older_calls import rows_of
from support.runs.older_scripts import NET, script  # noqa: F401

QUICK = """
from probe_legacy.hooks import *
import torch
import torch.nn as nn
import torch.nn.functional as F

class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear_1 = nn.Linear(in_features=2, out_features=2)
        self.linear_2 = nn.Linear(in_features=2, out_features=1)
        self.relu = nn.ReLU()

    def forward(self, x):
        return self.relu(self.linear_2(self.linear_1(x)))

module, other = Module(), Module()
other.load_state_dict(module.state_dict())
register_acc_cmp_hook(module)
register_acc_cmp_hook(other)
seed_all()
x = torch.randn(2, 2)
set_dump_path("./cpu_module_op.pkl")
module(x).sum().backward()
set_dump_path("./npu_module_op.pkl")
other(x).sum().backward()
compare("./npu_module_op.pkl", "./cpu_module_op.pkl", "./cmp_result.csv")
"""


def test_the_quick_start_of_hooks(script: Any, tmp_path: Path) -> None:
    script(QUICK)
    with (tmp_path / "cmp_result.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    names = {row["Name"] for row in rows}
    assert {"Functional_linear_forward_output", "Module_Linear_forward_output", "Module_ReLU_forward_output",
            "Tensor_sum_forward_output", "Functional_linear_backward_output.0"} <= names  # fmt: skip
    assert {row["RMSE"] for row in rows} == {"0.0"}
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "cmp_result.csv", "cpu_module_op.pkl", "npu_module_op.pkl", "script.py",
    ]  # fmt: skip


def test_hooks_on_a_residual_net(script: Any, tmp_path: Path) -> None:
    code = """
from probe_legacy.hooks import *
for name in ("npu", "cpu"):
    net = made(fault=name == "npu")
    register_acc_cmp_hook(net, f"./{name}.pkl")
    step(net)
compare("npu.pkl", "cpu.pkl", "result.csv")
"""
    script(NET + code)
    with (tmp_path / "result.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    first = next(row for row in rows if float(row["RMSE"] or 0) > 0)
    assert first["Name"] == "Functional_conv2d_forward_input.1"
    assert any(row["Name"].startswith("Functional_cross_entropy_forward") for row in rows)


def test_hooks_3_0_0_number_their_rows(script: Any, tmp_path: Path) -> None:
    code = """
from probe_legacy.hooks import *
net = made()
set_dump_path("./own.pkl")
register_hook(net, wrap_acc_cmp_hook, sample=True)
step(net)
"""
    script(NET + code)
    rows = rows_of(tmp_path / "own.pkl")
    assert [int(row[0].partition("_")[0]) for row in rows] == list(range(len(rows)))
    assert rows[0][0] == "0_Functional_conv2d_forward_input.0" and len(rows[0][1]) == 13
    assert not any("_Module_" in row[0] for row in rows)
