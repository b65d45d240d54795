"""Differences of batches, compared with a reference that computes them row by row."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from probe_diagnosis.timeline.batch_values import build_value_table
from probe_diagnosis.timeline.floors import apply_floors
from support.references.differences import differences_of
from support.runs.random_runs import random_run, random_tensor_runs
from support.runs.recorded import forward, tensor, write_run

from probe_core.flow.comparison import RunComparison
from probe_core.flow.judging import create_judge_chain
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager


def judged_batches(target: Path, golden: Path, output: Path, **options: Any) -> Iterator[RowBatch]:
    """Yield the batches of a comparison after all judges."""
    manager = Manager()
    plan = replace(Plan(target, golden, output, "0"), **options)
    with closing(RunComparison.open(plan, manager, target, golden)) as comparison:
        judging = create_judge_chain(manager, comparison.opened.note_failure)
        for batch in comparison.batches():
            judging.apply(batch)
            yield batch


def check(batches: Iterator[RowBatch]) -> set[str]:
    """Compare the differences of batches with the reference; return their states."""
    states: set[str] = set()
    for batch in batches:
        table = build_value_table(batch)
        apply_floors(batch, table)
        table.lines["row"] = -1
        for number, (key, rows) in enumerate(batch.all_rows()):
            lines = batch.lines(number)
            views = table.create_comparisons(lines.start, lines.stop, key)
            assert list(views) == differences_of(key, rows, by_tensor=batch.op(number).by_tensor)
            states |= {view.state for view in views}
    return states


@pytest.mark.parametrize("matcher", [None, "fuzzy", "align"])
def test_statistics_scalars_and_missing_values(matcher: str | None, tmp_path: Path) -> None:
    states: set[str] = set()
    for seed in range(6):
        source, directory = random.Random(seed), tmp_path / str(seed)
        runs = [random_run(source, directory / side, 16) / "dump.json" for side in ("target", "golden")]
        states |= check(judged_batches(runs[0], runs[1], tmp_path, matcher=matcher))
    assert states >= {"differs", "unjudged"}


def test_tensors(tmp_path: Path) -> None:
    states: set[str] = set()
    for seed in range(6):
        target, golden = random_tensor_runs(np.random.default_rng(seed), tmp_path / str(seed))
        states |= check(judged_batches(target / "dump.json", golden / "dump.json", tmp_path))
    assert states >= {"same", "differs"}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floors_of_long_sums(dtype: str, tmp_path: Path) -> None:
    """Differences around the floors of all classes of calls, with inputs of several sizes."""
    source = random.Random(dtype)
    sides: list[dict[str, Any]] = [{}, {}]
    for number in range(200):
        name = source.choice(["sum", "layer_norm", "softmax", "linear", "cumsum", "add"])
        phase = source.choice(["forward", "backward"])
        shapes = [[source.choice([1, 16, 4096]), source.choice([1, 64, 1000])] for _ in range(3)]
        distance, count = 10 ** source.uniform(-6, -0.5), source.randint(0, 2)
        for data, factor in zip(sides, (1 + distance, 1.0)):
            leaves = [tensor(shape, dtype=f"torch.{dtype}") for shape in shapes[:count]]
            result = tensor(shapes[2], factor, dtype=f"torch.{dtype}")
            record = forward(*leaves, output=[result])
            data[f"Functional.{name}.{number}.{phase}"] = (
                record if phase == "forward" else {"input": leaves, "output": [result]}
            )
    runs = [write_run(tmp_path / name, data) for name, data in zip("tg", sides)]
    assert check(judged_batches(runs[0], runs[1], tmp_path)) == {"same", "differs"}
