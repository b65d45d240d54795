"""Runs of random calls with odd values."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np

from support.runs.recorded import forward, scalar, tensor, write_run, write_tensor_run

VALUES = (0.5, -0.0, float("nan"), float("inf"), 3, 2**60, True, None, "text", 1e-300)


def random_run(source: random.Random, directory: Path, calls: int) -> Path:
    """A run of random calls: tensors with odd statistics, scalars, None, missing and additional calls."""
    data: dict[str, Any] = {}
    for number in range(calls):
        if source.random() < 0.15:
            continue
        leaves = []
        for _ in range(source.randrange(4)):
            fields = {name: source.choice(VALUES) for name in ("Max", "Min", "Mean", "Norm") if source.random() < 0.4}
            leaf: Any = {**tensor([source.randint(0, 3)], requires_grad=source.random() < 0.8), **fields}
            leaves.append(source.choice([leaf, leaf, scalar(source.choice([1, 0.5, True, "a"])), None]))
        name = source.choice(["add", "mul", "linear"])
        data[f"Torch.{name}.{number}.forward"] = forward(*leaves, output=[tensor(value=source.random())])
    return write_run(directory, data).parent


def random_tensors(source: np.random.Generator) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Two arrays of one shape: equal, close or apart, of any dtype, with odd numbers and masks among them."""
    dtype = source.choice([np.float32, np.float64, np.float16, np.int64, np.int32, np.bool_, np.complex64])
    golden = (source.standard_normal(tuple(source.integers(0, 4, source.integers(0, 3)))) * 9).astype(dtype)
    target = golden.copy()
    kind = source.integers(0, 6)
    if kind and target.size:
        target.flat[0] = source.choice([0, 1, 100, 2**53 + 1 if dtype is np.int64 else 7])
    if kind > 2 and dtype in (np.float32, np.float64):
        for side in (golden, target):
            side.flat[side.size // 2 :] = source.choice([-1e9, -np.inf, np.nan, 0.0])
    return target, golden


def random_tensor_runs(source: np.random.Generator, directory: Path) -> tuple[Path, Path]:
    """Two runs of twelve calls with random tensors, of which one file is missing."""
    calls: list[dict[str, Any]] = [{}, {}]
    for number in range(12):
        pairs = [random_tensors(source) for _ in range(source.integers(1, 5))]
        for side, data in enumerate(calls):
            values = [pair[side] for pair in pairs]
            data[f"Torch.add.{number}.forward"] = values[1:], values[:1]
    target, golden = (write_tensor_run(directory / name, data).parent for name, data in zip("tg", calls))
    (target / "dump_tensor_data" / "Torch.add.3.forward.output.0.npy").unlink()
    return target, golden
