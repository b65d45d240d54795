"""Small recorded runs, written as the recorders write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np


def tensor(shape: list[int] | None = None, value: float = 1.0, **fields: Any) -> dict[str, Any]:
    """A tensor leaf with statistics and no data."""
    return {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [2] if shape is None else shape,
        "Max": value, "Min": value, "Mean": value, "Norm": value, "requires_grad": False, **fields,
    }  # fmt: skip


def scalar(value: Any) -> dict[str, Any]:
    """A scalar leaf."""
    return {"type": type(value).__name__, "value": value}


def forward(*inputs: Any, output: list[Any] | None = None, **kwargs: Any) -> dict[str, Any]:
    """The record of a forward call."""
    return {"input_args": list(inputs), "input_kwargs": kwargs, "output": output or []}


def write_tensor_run(directory: Path, calls: dict[str, tuple[list[Any], list[Any]]]) -> Path:
    """Write a run with data: the input and the output arrays of each call, as ``.npy`` files."""
    files = directory / "dump_tensor_data"
    files.mkdir(parents=True)
    data = {}
    for key, sides in calls.items():
        leaves: list[list[Any]] = [[], []]
        for side, arrays, found in zip(("input", "output"), sides, leaves):
            for number, array in enumerate(arrays):
                name = f"{key}.{side}.{number}.npy"
                np.save(files / name, array)
                dtype = f"torch.{array.dtype}" if array.dtype.kind == "f" else "torch.float32"
                found.append(tensor(list(array.shape), data_name=name, dtype=dtype))
        data[key] = forward(*leaves[0], output=leaves[1])
    path = write_run(directory, data, task="tensor")
    path.write_text(path.read_text().replace("pytorch", "mindspore"))
    return path


def write_run(
    directory: Path, data: dict[str, Any], task: str = "statistics", name: str = "dump.json", **fields: Any
) -> Path:
    """Write a run into ``directory``, with more fields at its head; the path of its record file."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    head = {"task": task, "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    path.write_text(json.dumps({**head, **fields, "data": data}, indent=1))
    return path
