"""The programs of the fixtures, recorded by us: the same names and shapes, the same values up to rounding."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import against_msprobe
import pytest
import torch
from against_msprobe import Agreement, agreement, explained, find
from probe_pytorch.debugger import PrecisionDebugger
from support.programs.distributed_training import gathers_into_tensor
from support.programs.preloaded import PreloadedPopen

CASES = [
    ("tensor_L1_edge", "edge", "L1", "tensor"),
    ("tensor_L1_mlp_bf16", "mlp_bf16", "L1", "tensor"),
    ("stat_L1_mlp_fp16", "mlp_fp16", "L1", "statistics"),
    ("tensor_L1_fuzzy", "fuzzy", "L1", "tensor"),
    ("stat_mix_fuzzy", "fuzzy", "mix", "statistics"),
    ("tensor_L0_nested", "nested", "L0", "tensor"),
]
DISTRIBUTED = ("tensor_L1_dist2", "dist2", "L1", "tensor")
total = Agreement()


def arguments(case: str, side: str, out: Path, level: str, task: str) -> list[str]:
    return [str(against_msprobe.PROGRAMS), case, side, str(out), "--level", level, "--task", task,
            "--extra", '{"store": "files"}']  # fmt: skip


def autocasts_to_half() -> bool:
    try:
        with torch.autocast("cpu", torch.float16):
            return True
    except RuntimeError:
        return False


def hold(case: str, msprobe: Path, ours: Path) -> None:
    """Every difference is on the list, with its reason."""
    global total
    found = agreement(msprobe, ours)
    total += found
    assert [item for item in found.differences if not explained(case, *item)] == []
    assert found.extra == []


@pytest.mark.parametrize("side", ["bench", "npu"])
@pytest.mark.parametrize(("fixture", "case", "level", "task"), CASES, ids=lambda value: value)
def test_the_recording_is_that_of_msprobe(
    fixture: str, case: str, level: str, task: str, side: str, runs: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    if (case, side) == ("mlp_fp16", "npu") and not autocasts_to_half():
        pytest.skip("this torch has no autocast to float16 on the CPU")
    out = tmp_path / "run"
    monkeypatch.setenv("RECORDER", "probe_pytorch")
    for name in ("PYTHONHASHSEED", "HCCL_DETERMINISTIC"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(sys, "argv", arguments(case, side, out, level, task))
    PrecisionDebugger._instance = None
    try:
        runpy.run_path(str(against_msprobe.PROGRAMS), run_name="__main__")
    finally:
        assert PrecisionDebugger._instance is not None
        PrecisionDebugger._instance._recorder.finish()
        PrecisionDebugger._instance = None
    hold(case, find(runs(fixture, "26.2.0") / f"{side}_dump"), find(out))


@pytest.mark.parametrize(
    ("dtype", "value", "differs"),
    [
        ("float32", 1 + 30 * 2.0**-24, False),
        ("float32", 1 + 70 * 2.0**-24, True),
        ("float16", 1 + 2.0**-10, False),
        ("float16", 1.1, True),
        ("float32", float("nan"), True),
        ("int64", 2, True),
    ],
)
def test_what_counts_as_a_difference(tmp_path: Path, dtype: str, value: float, differs: bool) -> None:
    files = []
    for side, second in (("theirs", 1), ("ours", value)):
        tensor = torch.tensor([1, second, 1], dtype=getattr(torch, dtype))
        (tmp_path / side / "dump_tensor_data").mkdir(parents=True)
        torch.save(tensor, tmp_path / side / "dump_tensor_data" / "x.pt")
        leaf = {"type": "torch.Tensor", "dtype": f"torch.{dtype}", "shape": [3], "Max": 1.0, "Min": 1.0}
        record = {"Functional.linear.0.forward": {"output": [{**leaf, "data_name": "x.pt"}]}}
        files.append(tmp_path / side / "dump.json")
        files[-1].write_text(json.dumps({"data": record}))
    assert bool(agreement(*files).differences) == differs


def test_two_ranks(runs: Any, tmp_path: Path) -> None:
    if not gathers_into_tensor():
        pytest.skip("gloo of this torch has no all_gather_into_tensor")
    fixture, case, level, task = DISTRIBUTED
    out = tmp_path / "run"
    code = (
        "import os, runpy, sys, torch.distributed as dist; init = dist.init_process_group; "
        f"dist.init_process_group = lambda backend: init(backend, init_method='file://{tmp_path}/meet', "
        "rank=int(os.environ['RANK']), world_size=2); "
        "script = sys.argv[1]; sys.argv = sys.argv[1:]; runpy.run_path(script, run_name='__main__')"
    )
    ranks = [
        PreloadedPopen(
            [sys.executable, "-c", code, *arguments(case, "bench", out, level, task)],
            env={**os.environ, "RANK": str(rank), "RECORDER": "probe_pytorch"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank in ranks:
        output, _ = rank.communicate(timeout=120)
        assert rank.returncode == 0, output
    for rank in range(2):
        msprobe = runs(fixture, "26.2.0") / f"bench_dump/step0/rank{rank}/dump.json"
        hold(case, msprobe, out / f"step0/rank{rank}/dump.json")


def test_as_much_agrees_as_must() -> None:
    """Of all programs above: every name is there; what is not the same, msprobe has wrong."""
    if total.msprobe["backward"] < 60:
        pytest.skip("counts what the tests above found; run the whole file")
    assert not [item for item in total.differences if item[1] == "missing"]
    wrong = {"forward": 0, "backward": 0}
    for key, problem in total.differences:
        if "for inf" in problem or "cross_entropy" in key:  # as differences-recorder.yaml explains
            wrong["backward" if "backward" in key else "forward"] += 1
    for phase, least in (("forward", 0.99), ("backward", 0.97)):
        assert (total.same[phase] + wrong[phase]) / total.msprobe[phase] >= least
        assert total.share(phase) >= 0.94
