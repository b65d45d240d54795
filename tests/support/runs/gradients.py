"""Runs of the task grad_probe, recorded within the process of a test."""

from __future__ import annotations

import atexit
import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from probe_pytorch import PrecisionDebugger
from torch import nn

FIELDS = ("step", "rank")


def configuration(path: Path, **fields: Any) -> Path:
    """Write a config.json beside the run that it records."""
    common = {name: fields.pop(name) for name in FIELDS if name in fields}
    file = path.parent / f"{path.name}.json"
    file.write_text(json.dumps({"task": "grad_probe", "dump_path": str(path), "grad_probe": fields, **common}))
    return file


@contextmanager
def debugging(path: Path, **fields: Any) -> Iterator[Any]:
    """Yield a debugger of its own, which writes to ``path``."""
    PrecisionDebugger._instance = None
    debugger = PrecisionDebugger(configuration(path, **fields))
    try:
        yield debugger
    finally:
        atexit.unregister(debugger._recorder.finish)
        debugger._recorder.finish()
        PrecisionDebugger._instance = None


def record(path: Path, gradients: dict[str, Any], **fields: Any) -> Path:
    """Record one step of a module whose parameters have these gradients, and return the run."""
    with debugging(path, **fields) as debugger:
        model = module_of(gradients)
        debugger.monitor(model)
        torch.optim.SGD(model.parameters(), lr=0.0).step()
    return path


def module_of(gradients: dict[str, Any]) -> nn.Module:
    """Return a module whose parameters have these gradients."""
    model = nn.Module()
    for name, gradient in gradients.items():
        parameter = nn.Parameter(torch.zeros(gradient.shape, dtype=gradient.dtype))
        parameter.grad = gradient
        model.register_parameter(name, parameter)
    return model


def rows(path: Path, step: int = 0, rank: int = 0) -> list[dict[str, str]]:
    """Return the rows of a csv."""
    text = (path / f"rank{rank}" / f"grad_summary_{step}.csv").read_text("utf-8-sig")
    return list(csv.DictReader(text.splitlines()))


def steps(path: Path, rank: int = 0) -> list[int]:
    """Return the recorded steps."""
    return sorted(int(file.stem.rpartition("_")[2]) for file in (path / f"rank{rank}").glob("*.csv"))


def write_run(
    path: Path, signs: list[dict[str, Any]], *, norms: list[dict[str, float]] | None = None, rank: int = 0
) -> Path:
    """Write a run as msprobe lays it out: a dict of arrays of bool for each step."""
    for step, arrays in enumerate(signs):
        directory = path / f"rank{rank}" / f"step{step}"
        directory.mkdir(parents=True)
        lines = ["param_name,max,min,norm,shape"]
        for name, array in arrays.items():
            values = np.asarray(array)
            np.save(directory / f"{name}.npy", values)
            norm = norms[step].get(name, 1.0) if norms else 1.0
            lines.append(f'{name},1.0,-1.0,{norm!r},"{list(values.shape)}"')
        (path / f"rank{rank}" / f"grad_summary_{step}.csv").write_text("\n".join(lines), "utf-8-sig")
    return path
