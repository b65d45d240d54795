"""Fixtures that the tests of the pages share."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from support import DATA
from support.runs.nan_dumps import load_cases, write_case


@pytest.fixture(scope="session")
def room(runs: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory laid out as the pages assume: runs of two ranks, of both frameworks, and their files."""
    room = tmp_path_factory.mktemp("room")
    base = runs("tensor_L1_dist2")
    (room / "npu_dump").symlink_to(base / "npu_dump")
    for name in ("gpu_dump", "gpu_dump_again"):
        (room / name).symlink_to(base / "bench_dump")
    single = runs("stat_L1_datamap")
    (room / "dump.json").symlink_to(single / "npu_dump" / "step0" / "rank" / "dump.json")
    for run in ("mine", "probe-demo/target"):
        (room / run).parent.mkdir(exist_ok=True)
        (room / run).symlink_to(single / "npu_dump")
    with tarfile.open(DATA / "runs-mindspore-pairs.tar.xz") as file:
        file.extractall(room, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    with tarfile.open(DATA / "legacy.tar.xz") as file:
        file.extractall(room, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    with tarfile.open(DATA / "acl.tar.xz") as file:
        file.extractall(room, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    for name in ("acl_dump", "acl_dump_again"):
        (room / name).symlink_to(room / "acl_synthetic" / "output")
    for name in ("npu", "bench"):
        (room / name).symlink_to(room / "legacy" / "ptdbg23_conv_all" / name)
    for name in ("ms_new", "ms_old", "ms_run"):
        (room / name).symlink_to(room / "ms_mix_tensor")
    (room / "pt_run").symlink_to(room / "pt_mix_tensor")
    (room / "mine.yaml").write_text("- {ms_api: Mint.mine, pt_api: Torch.theirs}\n")
    (room / "cells.yaml").write_text("fc.Dense: head.Linear\n")
    paths = {"npu_path": "ms_run/dump.json", "bench_path": "pt_run/dump.json"}
    (room / "compare.json").write_text(json.dumps(paths))
    write_case(load_cases()["all_reduce_spreads"], room / "nan_dump" / "step0")
    return room
