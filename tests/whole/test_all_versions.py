"""Runs of every recorder version are read, and every number agrees with float64 numpy."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answer_files import first_cause

TENSOR_CASES = [
    *(("26.2.0", case) for case in (
        "tensor_L1_edge", "tensor_L0_nested", "tensor_L1_datamap", "tensor_L1_fuzzy", "tensor_L1_mlp_bf16",
        "tensor_L1_dist2", "debug_tensor",
    )),
    *(("1.0.4", case) for case in (
        "tensor_L1_edge", "tensor_L0_nested", "tensor_L1_datamap", "tensor_L1_fuzzy", "tensor_L1_mlp_bf16",
    )),
    *(("8.3.3", case) for case in (
        "tensor_L1_edge", "tensor_L0_nested", "tensor_L1_datamap", "tensor_L1_fuzzy", "tensor_L1_mlp_bf16",
        "tensor_L1_dist2", "debug_tensor",
    )),
]  # fmt: skip
OTHER_CASES = [
    *(("26.2.0", case) for case in (
        "stat_L1_edge", "stat_L0_nested", "stat_L1_datamap", "stat_L1_mlp_fp16", "stat_mix_fuzzy",
        "md5_L1_edge", "md5_L1_mlp_gelu", "xor_L1_mlp_gelu", "debug_stat",
    )),
    *(("1.0.4", case) for case in (
        "stat_L1_edge", "stat_L0_nested", "stat_L1_datamap", "stat_L1_mlp_fp16", "md5_L1_edge",
    )),
]  # fmt: skip
NAMES = (
    "Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr",
    "One Thousandth Err Ratio", "Five Thousandths Err Ratio",
)  # fmt: skip


def run_directories(base: Path) -> tuple[Path, Path]:
    """The first step's run of both sides, wherever the recorder put it."""
    found = [
        sorted(path.parent for path in (base / side).rglob("*.json") if path.name in ("dump.json", "debug.json"))
        for side in ("npu_dump", "bench_dump")
    ]
    return found[0][0], found[1][0]


def naive(target: np.ndarray[Any, Any], golden: np.ndarray[Any, Any]) -> dict[str, float]:
    """The six metrics as one would write them down, in float64 over the whole arrays."""
    wide = np.complex128 if np.iscomplexobj(target) else np.float64
    n, b = target.astype(wide).ravel(), golden.astype(wide).ravel()
    special = ~np.isfinite(n)
    n[special] = b[special] = 0
    difference = np.abs(n - b)
    with np.errstate(all="ignore"):
        relative = np.where(difference == 0, 0, difference / np.abs(b))
        cosine = np.sum(n * np.conj(b)).real / (np.sqrt(np.sum(np.abs(n) ** 2) * np.sum(np.abs(b) ** 2)))
    if not n.any() and not b.any():
        cosine = 1.0
    return dict(zip(NAMES, (
        cosine, np.sqrt(np.sum(difference**2)), difference.max(), relative.max(),
        np.mean(relative < 0.001), np.mean(relative < 0.005),
    )))  # fmt: skip


def read_pt(path: Path) -> np.ndarray[Any, Any]:
    torch = pytest.importorskip("torch")
    tensor = torch.load(path, weights_only=True).detach()
    return np.asarray(tensor.float() if tensor.dtype is torch.bfloat16 else tensor)


def assert_close(shown: Any, value: float, where: str) -> None:
    if math.isinf(value):
        assert shown == "inf", where
    else:
        assert shown == pytest.approx(value, rel=1e-5, abs=2e-12), where


@pytest.mark.parametrize("version, case", TENSOR_CASES)
def test_tensors_agree_with_float64(version: str, case: str, runs: Any, rows_of: Any) -> None:
    target, golden = run_directories(runs(case, version))
    measured = 0
    for row in rows_of(target, golden):
        ours, theirs = ast.literal_eval(row["Data_name"])
        if isinstance(row["MaxAbsErr"], str) and row["MaxAbsErr"] not in ("inf",):
            continue
        want = naive(read_pt(target / "dump_tensor_data" / ours), read_pt(golden / "dump_tensor_data" / theirs))
        for name in NAMES:
            if not isinstance(row[name], str) or row[name] == "inf":
                assert_close(row[name], want[name], f"{row['NPU Name']} {name}")
                measured += 1
    assert measured > (0 if "datamap" in case else 30)


@pytest.mark.parametrize("version, case", OTHER_CASES)
def test_statistics_agree_with_the_records(version: str, case: str, runs: Any, rows_of: Any) -> None:
    target, golden = run_directories(runs(case, version))
    rows = rows_of(target, golden)
    assert rows
    if "Max diff" not in rows[0]:
        assert {row["Result"] for row in rows} <= {"Pass", "Different", "N/A"}
        assert {"Pass", "Different"} <= {row["Result"] for row in rows}
        return
    for row in rows:
        if row["NPU Tensor Shape"] != row["Bench Tensor Shape"]:
            assert row["Max diff"] == row["NormRelativeErr"] == "N/A"
            continue
        for name in ("max", "min", "mean", "l2norm"):
            header = f"{'L2norm' if name == 'l2norm' else name.title()} diff"
            ours, theirs = row[f"NPU {name}"], row[f"Bench {name}"]
            if all(isinstance(value, (int, float)) for value in (ours, theirs)):
                assert row[header] == pytest.approx(ours - theirs, rel=1e-12), row["NPU Name"]
                relative = row[f"{'Norm' if name == 'l2norm' else name.title()}RelativeErr"]
                if theirs == 0:
                    assert relative == "N/A"
                else:
                    assert float(relative.removesuffix("%")) == pytest.approx(100 * abs((ours - theirs) / theirs))


@pytest.mark.parametrize("version", ["1.0.4", "8.3.3", "26.2.0"])
def test_every_recorded_value_has_its_row(version: str, runs: Any, rows_of: Any) -> None:
    """No leaf of either side is lost: each stands in the table, with a partner or alone."""
    target, golden = run_directories(runs("tensor_L0_nested", version))
    rows = rows_of(target, golden)
    for side, directory in (("NPU Name", target), ("Bench Name", golden)):
        shown = [row[side] for row in rows if row[side] != "N/A"]
        assert len(shown) == count_leaves(json.loads((directory / "dump.json").read_text())["data"])


def count_leaves(value: Any) -> int:
    if value is None or (isinstance(value, dict) and isinstance(value.get("type"), str)):
        return 1
    if isinstance(value, dict):
        return sum(count_leaves(item) for key, item in value.items() if key != "is_recompute")
    return sum(map(count_leaves, value))


def test_runs_of_different_versions_pair(runs: Any, rows_of: Any) -> None:
    """26.x calls parameter gradients ``….parameters_grad.0``; they meet those of 8.3."""
    target, _ = run_directories(runs("tensor_L0_nested", "26.2.0"))
    _, golden = run_directories(runs("tensor_L0_nested", "8.3.3"))
    rows = {row["NPU Name"]: row for row in rows_of(target, golden)}
    gradient = rows["Module.a.l.Linear.parameters_grad.0.weight"]
    assert gradient["Bench Name"] == "Module.a.l.Linear.parameters_grad.weight"
    assert gradient["Cosine"] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("case", ["ms_L1_tensor", "ms_L1_statistics"])
def test_mindspore_runs_are_read(case: str, runs: Any, rows_of: Any, probe: Any, tmp_path: Path) -> None:
    directory = runs(case, "mindspore")
    rows = rows_of(directory, directory)
    assert len(rows) > 50
    assert all(row.get("Accuracy Reached or Not", "") in ("Yes", "None", "") for row in rows)
    assert probe("compare", directory, directory, "--framework", "pytorch", "-o", tmp_path / "o") == 2
    assert "was not recorded from pytorch" in probe.err


def test_mindspore_wrong_gradient_is_named(runs: Any, probe: Any, tmp_path: Path) -> None:
    """A real fault: ``mint.split`` gives wrong gradients on a CPU; found by statistics alone."""
    target, golden = runs("msbug_L1_statistics", "mindspore"), runs("ms_L1_statistics", "mindspore")
    assert probe("compare", target, golden, "-o", tmp_path, "--format", "csv") == 0
    first = "MintFunctional.linear.0.backward"
    assert probe.out.startswith(f"DIVERGED: {first} returns values that differ, although the statistics of its inputs ")
    assert first_cause(tmp_path) == first
