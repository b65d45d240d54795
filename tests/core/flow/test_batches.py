"""Batches of rows: their size never changes a result, and views show what the columns hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.many_ranks import files
from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

from probe_core.flow import comparison

SIZES = (1, 2, 7, 4096)
VALUES = (0.5, -0.0, float("nan"), float("inf"), 3, 2**60, True, None, "text", 1e-300)


def random_run(source: random.Random, directory: Path, calls: int) -> Path:
    """A run of random calls: tensors with odd statistics, scalars, None, missing and additional calls."""
    data: dict[str, Any] = {}
    for number in range(calls):
        if source.random() < 0.15:
            continue
        leaves = []
        for _ in range(source.randrange(4)):
            fields = {
                name: source.choice(VALUES)
                for name in ("Max", "Min", "Mean", "Norm")
                if source.random() < 0.4
            }
            leaf: Any = {**tensor([source.randint(0, 3)], requires_grad=source.random() < 0.8), **fields}
            leaves.append(source.choice([leaf, leaf, scalar(source.choice([1, 0.5, True, "a"])), None]))
        name = source.choice(["add", "mul", "linear"])
        data[f"Torch.{name}.{number}.forward"] = forward(*leaves, output=[tensor(value=source.random())])
    return write_run(directory, data).parent


@pytest.mark.parametrize("seed", range(3))
def test_the_size_of_a_batch_changes_no_byte(seed: int, probe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    source = random.Random(seed)
    sides = [random_run(source, tmp_path / side, 12) for side in ("target", "golden")]
    options = (["-hl"], ["-f", "-da"], ["--match", "align"], ["-j", "4"])
    for number, option in enumerate(options):
        results = []
        for size in SIZES:
            monkeypatch.setattr(comparison, "BATCH_ROWS", size)
            out = tmp_path / f"out{number}_{size}"
            assert probe("compare", *sides, "-o", out, "--format", "csv,jsonl", *option) in (0, 2), probe.err
            results.append(files(out))
        assert all(result == results[0] for result in results)


def test_the_size_of_a_batch_of_tensors_changes_no_byte(probe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    source = np.random.default_rng(0)
    calls = {f"Torch.add.{n}.forward": ([source.random(3)], [source.random((2, n % 3))]) for n in range(9)}
    other = {key: ([value + 1e-3 for value in ins], outs) for key, (ins, outs) in calls.items()}
    sides = [
        write_tensor_run(tmp_path / side, data).parent
        for side, data in (("target", other), ("golden", calls))
    ]
    results = []
    for cost in (1, comparison.ROW_COST * 3, comparison.BATCH_COST):
        monkeypatch.setattr(comparison, "BATCH_COST", cost)
        out = tmp_path / f"out{cost}"
        assert probe("compare", *sides, "-o", out, "--format", "csv,jsonl", "-hl", "-j", "1") == 0, probe.err
        results.append(files(out))
    assert all(result == results[0] for result in results)
