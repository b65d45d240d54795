"""Scripts written for ptdbg_ascend run with only the import line changed, and give their tables."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from support.programs.rank_processes import run_ranks
from support.runs.older_scripts import NET, script  # noqa: F401

PTDBG = "from probe_legacy.ptdbg import *\n"
ONE_CARD = """
import sys
side = sys.argv[1]
net = made(fault=side == "npu")
set_dump_path(f"./{side}_dump.pkl", dump_tag="small")
register_hook(net, acc_cmp_dump)
set_dump_switch("ON", **eval(sys.argv[2]) if sys.argv[2:] else {})
step(net)
set_dump_switch("OFF")
"""
COMPARE = """
compare({{
    "npu_pkl_path": "small_v2.3/rank0/{prefix}npu_dump.pkl",
    "bench_pkl_path": "small_v2.3/rank0/{prefix}gpu_dump.pkl",
    "npu_dump_data_dir": "small_v2.3/rank0/{prefix}npu_dump",
    "bench_dump_data_dir": "small_v2.3/rank0/{prefix}gpu_dump",
    "is_print_compare_log": True,
}}, "./output", stack_mode={stacks})
"""


def table_in(path: Path) -> list[dict[str, str]]:
    (file,) = path.glob("compare_result*.csv")
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


def faults(rows: list[dict[str, str]]) -> list[str]:
    return [row["NPU Name"] for row in rows if row["Accuracy Reached or Not"] == "No"]


def test_one_card(script: Any, tmp_path: Path) -> None:
    for side in ("npu", "gpu"):
        script(PTDBG + NET + ONE_CARD, side)
    out = script(PTDBG + COMPARE.format(prefix="", stacks=False))
    rows = table_in(tmp_path / "output")
    assert faults(rows)[0] == "Functional_conv2d_1_forward_input.1"
    assert {row["Err_message"] for row in rows} == {""}
    (advice,) = (tmp_path / "output").glob("advisor_*.txt")
    assert advice.read_text().rstrip() in out and "Suspect Nodes: Functional_conv2d_1" in out


def test_npu_against_npu(script: Any, tmp_path: Path) -> None:
    """Two runs of one side agree to the bit."""
    code = ONE_CARD.replace('fault=side == "npu"', "")
    for side in ("npu", "gpu"):
        script(PTDBG + NET + code, side)
    script(PTDBG + COMPARE.format(prefix="", stacks=False))
    rows = table_in(tmp_path / "output")
    assert len(rows) > 60 and faults(rows) == []
    assert {row["MaxAbsErr"] for row in rows} == {"0.000000"}


def test_several_ranks(script: Any, tmp_path: Path) -> None:
    code = (
        PTDBG
        + NET
        + """
import os, sys
side, rank = sys.argv[1], int(os.environ["RANK"])
net = made(fault=side == "npu" and rank == 1)
set_dump_path(f"{sys.argv[2]}/{side}/dump.pkl")
register_hook(net, acc_cmp_dump, rank=rank)
set_dump_switch("ON")
step(net)
set_dump_switch("OFF")
"""
    )
    file = tmp_path / "ranks.py"
    file.write_text(code)
    for side in ("npu", "gpu"):
        run_ranks([sys.executable, str(file), side, str(tmp_path)], tmp_path, 2)
    script(PTDBG + 'compare_distributed("npu/ptdbg_dump_v2.3", "gpu/ptdbg_dump_v2.3", "./output", auto_analyze=False)')
    tables = sorted((tmp_path / "output").iterdir())
    assert [file.name.rpartition("_")[0] for file in tables] == [
        "compare_result_rank0-rank0", "compare_result_rank1-rank1",
    ]  # fmt: skip
    found = [faults(list(csv.DictReader(file.open(newline="")))) for file in tables]
    assert found[0] == [] and found[1][0] == "Functional_conv2d_1_forward_input.1"


def test_compare_distributed_pairs_ranks_of_other_numbers_in_order(tmp_path: Path) -> None:
    from probe_legacy.ptdbg import compare_distributed

    row = '["Torch_relu_1_forward_output", 1, [], "torch.float32", [1], [0.0, 0.0, 0.0]]\n'
    for name in ("npu/rank980", "npu/rank19778", "gpu/rank0", "gpu/rank1"):
        (tmp_path / name / "dump").mkdir(parents=True)
        (tmp_path / name / "dump.pkl").write_text(row)
    compare_distributed(*(str(tmp_path / name) for name in ("npu", "gpu", "out")), auto_analyze=False)
    tables = sorted(file.name.rpartition("_")[0] for file in (tmp_path / "out").iterdir())
    assert tables == ["compare_result_rank19778-rank1", "compare_result_rank980-rank0"]


def test_the_ranks_of_both_sides_are_the_same(script: Any, tmp_path: Path) -> None:
    for rank in ("npu/rank0", "npu/rank1", "gpu/rank0"):
        (tmp_path / rank).mkdir(parents=True)
    out = script(
        PTDBG + "try:\n    compare_distributed('npu', 'gpu', 'out')\nexcept Exception as error:\n    print(error)"
    )
    assert "npu holds the ranks [0, 1], and gpu the ranks [0]" in out


def test_the_overflow_check_ends_the_program(script: Any, tmp_path: Path) -> None:
    code = """
net = made()
with torch.no_grad():
    net.head.weight[0, 0] = float("inf")
set_dump_path("./dump.pkl")
register_hook(net, overflow_check, overflow_nums=1)
try:
    step(net)
except ValueError as error:
    print(error)
"""
    out = script(PTDBG + NET + code)
    (file,) = (tmp_path / "ptdbg_dump_v2.3/rank0").glob("Overflow_info_*.pkl")
    assert "module name :'Functional_linear_0_forward' is overflow" in out
    assert f"[overflow 1 times]: dump file is saved in '{file}'." in out


def test_call_stacks_then_a_list_then_a_range(script: Any, tmp_path: Path) -> None:
    for side in ("npu", "gpu"):
        script(PTDBG + NET + ONE_CARD, side, "{'mode': 'api_stack'}")
    script(PTDBG + COMPARE.format(prefix="api_stack_", stacks=True))
    rows = table_in(tmp_path / "output")
    first = faults(rows)[0].rpartition("_")[0]
    assert any("in step" in row["NPU_Stack_Info"] or "step" in row["NPU_Stack_Info"] for row in rows)
    for mode, scope in (("list", [first]), ("range", [first, "Functional_linear_0_forward"])):
        for side in ("npu", "gpu"):
            script(PTDBG + NET + ONE_CARD, side, str({"mode": mode, "scope": scope}))
        for old in (tmp_path / "output").iterdir():
            old.unlink()
        script(PTDBG + COMPARE.format(prefix="", stacks=False))
        names = [row["NPU Name"] for row in table_in(tmp_path / "output")]
        assert names[0].startswith(first) and len(names) == 4 if mode == "list" else len(names) > 10


def test_the_backward_input(script: Any, tmp_path: Path) -> None:
    """The gradient of an earlier dump, and mode acl; the device is a stand-in that notes its calls."""
    script(PTDBG + NET + ONE_CARD, "npu")
    (tmp_path / "dump.json").write_text('{"dump": {"dump_list": [], "dump_path": "/tmp", "dump_mode": "all"}}')
    device = """
import sys, types
told = []
sys.modules["torch_npu"] = types.SimpleNamespace(npu=types.SimpleNamespace(
    synchronize=lambda: None, init_dump=lambda: told.append("init"), set_dump=told.append,
    finalize_dump=lambda: told.append("end")))
"""
    code = """
net = made()
set_dump_path("./acl.pkl")
register_hook(net, acc_cmp_dump, dump_mode="acl", dump_config="./dump.json")
set_dump_switch("ON", mode="acl", scope=["Functional_conv2d_1_backward"])
set_backward_input(["./small_v2.3/rank0/npu_dump/Functional_conv2d_1_backward_input.0.npy"])
step(net)
set_dump_switch("OFF")
print(told)
"""
    assert script(device + PTDBG + NET + code) == f"['init', '{tmp_path / 'dump.json'}', 'end']\n"


def test_the_parse_of_the_result(script: Any, tmp_path: Path) -> None:
    script(PTDBG + NET + ONE_CARD, "npu", "{'mode': 'api_stack'}")
    out = script(PTDBG + 'parse("./small_v2.3/rank0/api_stack_npu_dump.pkl", "Functional_conv2d_1_forward")')
    assert out.startswith("\nStatistic Info:\n  [Functional_conv2d_1_forward_input.0][dtype: torch.float32]")
    assert "Trace back(Functional_conv2d_1_forward_stack_info):" in out
    assert "return F.relu(self.norm(self.conv(x)) + x)" in out
