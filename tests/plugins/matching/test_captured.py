"""Calls that one of two recorders does not capture are left out of the comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from probe_matching.captured import exclude_uncaptured
from probe_recording.reading.run import DumpRun
from support.runs.recorded import forward, tensor, write_run

FAMILIES = {"custom_operators": ["_C"], "autograd_functions": ["Autograd"]}

NOTHING_SEEN: dict[str, list[str]] = {family: [] for family in FAMILIES}


def open_run(directory: Path, names: list[str], **notes: Any) -> DumpRun:
    path = write_run(directory, {f"{name}.forward": forward(tensor([2])) for name in names})
    head = json.loads(path.read_text())
    path.write_text(json.dumps({**{k: v for k, v in head.items() if k != "data"}, "probe": notes, **head}))
    return DumpRun(path, "pytorch", lambda path: np.zeros(1))


ALL = ["Torch.relu.0", "_C.norm.0", "Autograd.Fused.0", "Torch.relu.1"]
PLAIN = ["Torch.relu.0", "Torch.relu.1"]


def forwards(names: list[str]) -> list[str]:
    return [f"{name}.forward" for name in names]


def test_comparable_leaves_out_families_that_the_other_recorder_lacks(tmp_path: Path) -> None:
    full, plain = open_run(tmp_path / "t", ALL, families=FAMILIES), open_run(tmp_path / "g", PLAIN)
    target, golden, notes = exclude_uncaptured(full, plain)
    assert list(target.names()) == forwards(PLAIN) and golden is plain
    assert notes == ("not compared: 2 calls of Autograd, _C, which the recorder of the golden did not record",)
    golden, target, notes = exclude_uncaptured(plain, full)
    assert list(target.names()) == forwards(PLAIN) and golden is plain
    assert notes[0].endswith("the recorder of the target did not record")


def test_comparable_keeps_families_that_both_recorders_list(tmp_path: Path) -> None:
    full = open_run(tmp_path / "t", ALL, families=FAMILIES)
    other = open_run(tmp_path / "g", PLAIN, families=NOTHING_SEEN)
    assert exclude_uncaptured(full, other) == (full, other, ())


def test_comparable_keeps_scopes_that_the_other_recorder_captured(tmp_path: Path) -> None:
    full = open_run(tmp_path / "t", ALL, families=FAMILIES)
    msprobe = open_run(tmp_path / "g", ["Torch.relu.0", "_C.norm.0", "_C.gelu.0", "Torch.relu.1"])
    target, golden, _ = exclude_uncaptured(full, msprobe)
    assert list(target.names()) == forwards(["Torch.relu.0", "_C.norm.0", "Torch.relu.1"])
    assert golden is msprobe


def test_comparable_leaves_out_operators_that_the_other_recorder_ignored(tmp_path: Path) -> None:
    full = open_run(tmp_path / "t", [*ALL, "_C.gelu.0"], families=FAMILIES)
    other = open_run(tmp_path / "g", PLAIN, families=NOTHING_SEEN, unrecorded={"_C.norm": 3})
    target, _, _ = exclude_uncaptured(full, other)
    assert list(target.names()) == forwards(["Torch.relu.0", "Autograd.Fused.0", "Torch.relu.1", "_C.gelu.0"])


def test_partial_runs_read_the_records_of_the_whole_run(tmp_path: Path) -> None:
    full, plain = open_run(tmp_path / "t", ALL, families=FAMILIES), open_run(tmp_path / "g", PLAIN)
    partial, _, _ = exclude_uncaptured(full, plain)
    assert [record.key for record in partial.records()] == forwards(PLAIN)
    assert [record.index for record in partial.records()] == [0, 1]
    assert partial.find("Torch.relu.1.forward") == 1 and partial.find("_C.norm.0.forward") is None
    assert list(partial.starts) == list(plain.starts)
    assert list(partial.signatures) == list(plain.signatures)


def test_headers_with_malformed_families_are_read_as_empty(tmp_path: Path) -> None:
    run = open_run(tmp_path / "t", PLAIN, families={"a": 3, "b": [1, "x"]}, unrecorded=["y"])
    assert run.header.families == {"b": frozenset({"x"})} and run.header.unrecorded == {}
