"""Comparisons of hostile numbers, none of which makes numpy warn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.runs.answered import back, call, record

METRICS = ["cosine", "euclidean", "max_error", "error_ratio", "statistics", "rmse", "mape", "ulp", "equal"]


def hostile_arrays() -> list[tuple[Any, Any]]:
    """Pairs of arrays that overflow, underflow, or are not finite in some step of a computation."""
    pairs: list[tuple[Any, Any]] = []
    for dtype in (np.float16, np.float32, np.float64):
        limits = np.finfo(dtype)
        large, tiny = np.full(8, limits.max, dtype), np.full(8, limits.smallest_subnormal, dtype)
        nothing, one = np.zeros(8, dtype), np.ones(8, dtype)
        odd = np.array([np.nan, np.inf, -np.inf, 0, 1, 2, 3, 4], dtype)
        sides = (large, -large, tiny, nothing, -nothing, one, odd, odd[::-1].copy())
        pairs += [(target, golden) for target in sides for golden in sides]
        pairs += [(large[:1], tiny[:1]), (odd[:1], one[:1]), (large[:0], large[:0])]
        pairs += [(np.array(limits.max, dtype), np.array(limits.min, dtype))]
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    pairs.append((np.array([lowest, highest, 1]), np.array([highest, lowest, 0])))
    pairs.append((np.array([-128, 127], np.int8), np.array([127, -128], np.int8)))
    pairs.append((np.array([True, False]), np.array([False, False])))
    return pairs


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("task", ["tensor", "statistics"])
def test_compare_of_hostile_numbers_warns_of_nothing(task: str, probe: Any, tmp_path: Path) -> None:
    runs = []
    for side, name in enumerate(("target", "golden")):
        calls = {f"Torch.a.{n}.forward": call(pair[side], out=pair[side]) for n, pair in enumerate(hostile_arrays())}
        calls |= {f"Torch.a.{n}.backward": back(pair[side], pair[side]) for n, pair in enumerate(hostile_arrays())}
        scalars = [(1e308, -1e308), (float("inf"), 1.0), (float("nan"), 0.0), (0.0, 5e-324)]
        calls |= {f"Torch.b.{n}.forward": call(pair[side]) for n, pair in enumerate(scalars)}
        runs.append(record(tmp_path / name, calls, task))
    metrics = [word for name in METRICS for word in ("--metric", name)] if task == "tensor" else []
    formats = ["--format", "xlsx,csv,jsonl,html"]
    for options in (
        [*metrics, "--policy", "accuracy,first_difference", "-hl", *formats],
        ["-da"],
        ["--match", "align"],
    ):
        assert probe("compare", *runs, "-o", tmp_path / "out", *options) == 0, probe.err
        assert "RuntimeWarning" not in probe.err
