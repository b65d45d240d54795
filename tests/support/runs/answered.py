"""Runs described by their arrays, with or without data, and what a comparison of two of them answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.model.plan import Plan
from probe_core.model.report import Report
from probe_core.plugins.manager import Manager
from support.runs.comparing import compare
from support.runs.recorded import scalar, write_run

Calls = dict[str, dict[str, Any]]


def normal(*shape: int, seed: int = 0) -> Any:
    """Normally distributed float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape or (64,)).astype(np.float32)


def call(*inputs: Any, out: Any = (), **keywords: Any) -> dict[str, Any]:
    """A forward call: arrays are tensors, numbers and texts are scalars; ``out`` is a value or a list."""
    return {"input_args": list(inputs), "input_kwargs": keywords, "output": _listed(out)}


def back(inputs: Any, out: Any) -> dict[str, Any]:
    """A backward call."""
    return {"input": _listed(inputs), "output": _listed(out)}


def statistics(array: Any) -> dict[str, Any]:
    """The leaf of a tensor, without data."""
    with np.errstate(all="ignore"):
        wide = array.astype(np.float64)
        numbers = [wide.max(), wide.min(), wide.mean(), np.sqrt((wide**2).sum())] if array.size else [None] * 4
    if array.dtype.kind in "ui" and array.size:
        numbers = [int(number) for number in numbers[:2]] + [float(number) for number in numbers[2:]]
    shown = [number if number is None or isinstance(number, int) else float(number) for number in numbers]
    return {
        "type": "torch.Tensor", "dtype": f"torch.{array.dtype}", "shape": list(array.shape),
        **dict(zip(("Max", "Min", "Mean", "Norm"), shown)), "requires_grad": False,
    }  # fmt: skip


def record(directory: Path, calls: Calls, task: str = "tensor", construct: Any = None) -> Path:
    """Write a run; with the task ``tensor``, its arrays are written beside it as ``.npy`` files."""
    files = directory / "dump_tensor_data"
    files.mkdir(parents=True)

    def leaf(value: Any, name: str) -> Any:
        if isinstance(value, dict) and "dtype" in value:
            return value
        if isinstance(value, dict):
            return {key: leaf(inner, f"{name}.{key}") for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [leaf(inner, f"{name}.{number}") for number, inner in enumerate(value)]
        if not isinstance(value, np.ndarray):
            return None if value is None else scalar(value)
        found = statistics(value)
        if task == "tensor":
            np.save(files / f"{name}.npy", value)
            found["data_name"] = f"{name}.npy"
        return found

    sides = {"input_args": "input", "input_kwargs": "input"}
    data = {
        key: {side: leaf(value, f"{key}.{sides.get(side, side)}") for side, value in sections.items()}
        for key, sections in calls.items()
    }
    path = write_run(directory, data, task=task)
    path.write_text(path.read_text().replace('"pytorch"', '"mindspore"'))
    (directory / "construct.json").write_text(json.dumps(construct or {}))
    return path


def answered(directory: Path, target: Calls, golden: Calls, task: str = "tensor", construct: Any = None) -> Report:
    """Record both runs, and compare them."""
    paths = [record(directory / side, calls, task, construct) for side, calls in (("t", target), ("g", golden))]
    return compared(directory, *paths)


def compared(directory: Path, target: Path, golden: Path) -> Report:
    """Compare two runs."""
    (report,) = compare(Plan(target, golden, directory / "o", "0", formats=("jsonl",)), Manager())
    return report


def causes(report: Report) -> list[tuple[str, str]]:
    """Return the op and the statement of each cause, the latter without its numbers in brackets."""
    return [(one.op, one.why.rpartition(" (")[0] or one.why) for one in report.suspects]


def _listed(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]
