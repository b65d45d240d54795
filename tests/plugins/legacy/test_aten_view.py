"""A run of Aten operators beside one of the operators that call them: the same tensors pair, no others."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from probe_legacy.aten_view import create_common_views, find_operators
from support.probe import Probe
from support.runs.older_dumps import dumps, open_dump, ptdbg_row, write_rows  # noqa: F401

from probe_core.files.packaged import load_yaml

FILE = "ptdbg23_conv_all/bench/ptdbg_dump_v2.3/rank0/bench_dump.pkl"
ATEN = {  # the Aten operator of a call, and its arguments by those of the call
    "Functional_conv2d": ("convolution", "012"),
    "Functional_batch_norm": ("native_batch_norm", "03412"),
    "Functional_relu": ("relu", "0"),
    "Functional_max_pool2d": ("max_pool2d_with_indices", "0"),
    "Functional_linear": ("addmm", "201"),
    "Functional_log_softmax": ("_log_softmax", "0"),
    "Functional_nll_loss": ("nll_loss_forward", "01"),
}
TRANSPOSED = "Functional_linear_0_forward_input.1"


def at_the_aten_level(row: list[Any]) -> tuple[str, str] | None:
    """Return the name of a row, and the name that a recorder of Aten operators gives to its value."""
    match = re.fullmatch(r"(.+?)_(\d+)_(forward|backward)_(input|output)(?:\.(\d))?", row[0])
    assert match is not None
    call, number, phase, side, place = match.groups()
    if call not in ATEN:
        return None
    aten, order = ATEN[call]
    if place is not None and (phase, side) == ("forward", "input"):
        place = str(order.index(place)) if place in order else place
    tail = "" if place is None else f".{place}"
    return row[0], f"Aten_{aten}.default_{number}_{phase}_{side}{tail}"


def test_tensors_pair_by_what_they_are(dumps: Path, probe: Probe, tmp_path: Path) -> None:
    every = [json.loads(line) for line in (dumps / FILE).read_text().splitlines()]
    rows = [row for row in every if row[0].startswith(("Functional", "Tensor_flatten"))]  # no inner calls
    names = dict(filter(None, map(at_the_aten_level, rows)))
    aten = [[names[row[0]], *row[1:]] for row in rows if row[0] in names and row[0] != TRANSPOSED]
    target, golden = write_rows(tmp_path / "aten.pkl", *aten), write_rows(tmp_path / "api.pkl", *rows)
    assert probe("compare", target, golden, "-o", tmp_path / "out", "--format", "csv") == 0, probe.err
    (table,) = (tmp_path / "out").glob("*.csv")
    with table.open(newline="", encoding="utf-8-sig") as file:
        pairs = [(row["NPU Name"], row["Bench Name"]) for row in csv.DictReader(file)]
    both = {golden: target for target, golden in pairs if "N/A" not in (target, golden)}
    shown = {slot.value.data_name: slot.name for run in map(open_dump, (target, golden))
             for record in run.records() for slot in record.slots}  # fmt: skip
    assert both == {shown[f"{name}.npy"]: shown[f"{other}.npy"] for name, other in names.items() if name != TRANSPOSED}
    assert len(both) >= 40
    assert "Aten operators are compared with the operators that call them" in probe.out + probe.err


def views(tmp_path: Path, target: list[str], golden: list[str]) -> list[list[str]] | None:
    files = [
        write_rows(tmp_path / f"{side}.pkl", *[ptdbg_row(f"{call}_output", [1.0] * 3) for call in calls])
        for side, calls in (("n", target), ("b", golden))
    ]
    found = create_common_views(*map(open_dump, files), has_places=False)
    return None if found is None else [list(run.names()) for run in found]


def test_calls_of_one_operator_are_counted_in_their_order(tmp_path: Path) -> None:
    aten = [
        "Aten_mm_0_forward",
        "Aten_addmm_0_forward",
        "Torch_exp_0_forward",
        "Aten_mm_1_forward",
        "Aten_mm_0_backward",
    ]
    other = [
        "Functional_linear_3_forward",
        "Torch_linear_0_forward",
        "Torch_exp_0_forward",
        "Functional_linear_3_backward",
    ]
    assert views(tmp_path, aten, other) == [
        ["Aten.linear.0.forward", "Aten.linear.1.forward", "Torch.exp.0.forward", "Aten.linear.2.forward", "Aten.linear.0.backward"],
        ["Aten.linear.0.forward", "Aten.linear.1.forward", "Torch.exp.0.forward", "Aten.linear.0.backward"],
    ]  # fmt: skip


def test_runs_of_one_level_are_left_as_they_are(tmp_path: Path) -> None:
    assert views(tmp_path, ["Torch_exp_0_forward"], ["Torch_exp_0_forward"]) is None
    assert views(tmp_path, ["Aten_exp_0_forward"], ["Aten_exp_0_forward"]) is None
    assert views(tmp_path, ["Aten_exp_0_forward"], ["Torch_cos_0_forward"]) is None


@pytest.mark.parametrize(
    ("aten", "operator"),
    [
        ("relu", "relu"),
        ("relu_", "relu_"),
        ("add.Tensor", "add"),
        ("add.Tensor", "__add__"),
        ("_softmax", "softmax"),
        ("native_batch_norm", "batch_norm"),
        ("_native_batch_norm_legit_functional", "batch_norm"),
        ("cudnn_batch_norm", "batch_norm"),
        ("nll_loss_forward", "nll_loss"),
        ("max_pool2d_with_indices", "max_pool2d"),
        ("linalg_vector_norm", "norm"),
        ("special_erfcx", "erfcx"),
        ("fft_rfft2", "rfft2"),
        ("_unsafe_view", "view"),
        ("__and__", "__and__"),
        ("_adaptive_avg_pool2d", "adaptive_avg_pool2d"),
    ],
)
def test_operators(aten: str, operator: str) -> None:
    assert operator in find_operators(aten)


@pytest.mark.parametrize(("aten", "operator"), [("relu", "relu_"), ("mul", "add"), ("convolution", "linear")])
def test_others_are_not_taken_for_them(aten: str, operator: str) -> None:
    assert operator not in find_operators(aten)


def test_the_table_names_operators_that_exist() -> None:
    """Each listed Aten operator is one of PyTorch, and each name one that the tool can have wrapped."""
    names = set(dir(torch)) | set(dir(torch.Tensor)) | set(dir(torch.nn.functional))
    older = {"__div__", "__idiv__", "nll_loss2d", "solve"}
    for aten, operators in load_yaml("probe_legacy.reading", "aten.yaml")["operators"].items():
        assert hasattr(torch.ops.aten, aten), aten
        assert set(operators) <= names | older | set(dir(torch.fft)) | set(dir(torch.linalg)), aten
