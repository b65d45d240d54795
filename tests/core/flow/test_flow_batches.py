"""Batches of rows: their size never changes a result, and views show what the columns hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.many_ranks import files
from support.runs.random_runs import random_run, random_tensor_runs

from probe_core.flow import matched, prefetching

SIZES = (1, 2, 7, 4096)


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_a_batch_changes_no_byte(seed: int, probe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    source = random.Random(seed)
    sides = [random_run(source, tmp_path / side, 12) for side in ("target", "golden")]
    options = (["-hl"], ["-f", "-da"], ["--match", "align"], ["-j", "4"])
    for number, option in enumerate(options):
        results = []
        for size in SIZES:
            monkeypatch.setattr(matched, "MAX_BATCH_ROWS", size)
            out = tmp_path / f"out{number}_{size}"
            assert probe("compare", *sides, "-o", out, "--format", "csv,jsonl", *option) in (0, 2), probe.err
            results.append(files(out))
        assert all(result == results[0] for result in results)


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_a_batch_of_tensors_changes_no_byte(
    seed: int, probe: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    target, golden = random_tensor_runs(np.random.default_rng(seed), tmp_path)
    policies = "accuracy,first_difference"
    results = []
    for cost, size in ((1, 1), (matched.ROW_COST * 3, 40), (matched.MAX_BATCH_COST, prefetching.MAX_GROUP_BYTES)):
        monkeypatch.setattr(matched, "MAX_BATCH_COST", cost)
        monkeypatch.setattr(prefetching, "MAX_GROUP_BYTES", size)
        for jobs in ("1", "4"):
            out = tmp_path / f"out{cost}-{jobs}"
            options = ("--format", "csv,jsonl", "-hl", "-j", jobs, "--policy", policies, "--metric", "ulp")
            assert probe("compare", target, golden, "-o", out, *options) in (0, 1), probe.err
            results.append(files(out))
    assert all(result == results[0] for result in results)
