"""A small writer of runs: calls of mint are run once, and written in the format of the recorder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from probe_mindspore.precheck import device
from probe_mindspore.precheck.apis import find_device_function
from probe_mindspore.precheck.random_arrays import round_to_dtype
from probe_mindspore.precheck.tensors import (
    STORAGE_DTYPES,
    Arguments,
    DType,
    TensorArgument,
    iterate_leaves,
    map_leaves,
)
from probe_precheck.model import Array

Functions = Mapping[str, Callable[..., Any]]


def T(*shape: int, low: float = -2.0, high: float = 2.0, dtype: str = "", seed: int = 0) -> TensorArgument:
    """Return a random tensor argument; without a dtype it has that of the run."""
    generator = np.random.default_rng([seed, *shape, int(abs(low) * 100), int(abs(high) * 100)])
    values = generator.uniform(low, high, shape)
    if dtype == "Bool":
        values = values > (low + high) / 2
    elif dtype.startswith(("Int", "UInt")):
        values = np.floor(values)
    return TensorArgument(values, dtype)


def V(values: Any, dtype: str = "") -> TensorArgument:
    """Return a tensor argument with these values."""
    return TensorArgument(np.asarray(values, np.float64), dtype)


def D(name: str) -> DType:
    """Return a dtype argument."""
    return DType(name)


def typed(value: Any, dtype: str) -> Any:
    """Return the arguments of a call, in a run of this dtype."""

    def change(item: Any) -> Any:
        if not isinstance(item, TensorArgument):
            return item
        name = item.dtype or dtype
        return TensorArgument(round_to_dtype(item.values.astype(STORAGE_DTYPES[name]), name), name)

    return map_leaves(value, change)


class Recording:
    """A run that is being written.

    Args:
        directory: Directory of its ``dump.json``.
        task: ``tensor`` to write the values, ``statistics`` to leave them out.
        dtype: Dtype of floating-point tensors that have none of their own.
        instead: Functions to run in place of MindSpore's, by the name of a record without its count.
    """

    def __init__(
        self,
        directory: Path,
        task: str = "statistics",
        dtype: str = "Float32",
        instead: Functions | None = None,
    ) -> None:
        device.select_device("")
        self._directory = directory
        self._data = directory / "dump_tensor_data"
        self._data.mkdir(parents=True, exist_ok=True)
        self._task = task
        self._dtype = dtype
        self._instead = instead or {}
        self._counts: dict[str, int] = {}
        self.data: dict[str, Any] = {}

    def call(self, api: str, *positional: Any, backward: bool = True, keywords: Mapping[str, Any] | None = None) -> str:
        """Run a call, write it with its backward, and return its name."""
        count = self._counts[api] = self._counts.get(api, -1) + 1
        name = f"{api}.{count}"
        arguments = Arguments(typed(positional, self._dtype), typed(dict(keywords or {}), self._dtype))
        function = self._instead.get(api) or find_device_function(*api.split(".", 1))
        output = device.run_forward(function, arguments, 1)
        self.data[f"{name}.forward"] = {
            "input_args": [
                self._leaf(item, f"{name}.forward.input.{i}") for i, item in enumerate(arguments.positional)
            ],
            "input_kwargs": {k: self._leaf(v, f"{name}.forward.input.{k}") for k, v in arguments.keywords.items()},
            "output": [self._leaf(item, f"{name}.forward.output.{i}") for i, item in enumerate(_list(output))],
        }
        flat = [item for item in iterate_leaves(output) if isinstance(item, Array)]
        if (
            backward
            and any(made.is_float for made in arguments.tensors)
            and any(a.values.dtype.kind == "f" for a in flat)
        ):
            self._backward(name, api.split(".")[-1], function, arguments, flat)
        return name

    def _backward(
        self, name: str, api: str, function: Callable[..., Any], arguments: Arguments, flat: Sequence[Array]
    ) -> None:
        generator = np.random.default_rng(len(self.data))
        gradients: list[TensorArgument | None] = []
        for array in flat:
            drawn = generator.uniform(-1, 1, array.values.shape)
            is_float = array.values.dtype.kind == "f"
            gradients.append(typed(TensorArgument(drawn, array.dtype), self._dtype) if is_float else None)
        found = device.run_backward(function, api, arguments, gradients, 1)
        given = iter(found)
        outputs = [next(given) if made.is_float else None for made in arguments.tensors]
        self.data[f"{name}.backward"] = {
            "input": [self._leaf(item, f"{name}.backward.input.{i}") for i, item in enumerate(gradients)],
            "output": [self._leaf(item, f"{name}.backward.output.{i}") for i, item in enumerate(outputs)],
        }

    def write(self) -> Path:
        """Write ``dump.json``."""
        header = {
            "task": self._task,
            "level": "L1",
            "framework": "mindspore",
            "dump_data_dir": "dump_tensor_data",
        }
        path = self._directory / "dump.json"
        path.write_text(json.dumps({**header, "data": self.data}), "utf-8")
        return path

    def _leaf(self, item: Any, place: str) -> Any:
        if item is None:
            return None
        if isinstance(item, (TensorArgument, Array)):
            return self._tensor(item.values, item.dtype, place)
        if isinstance(item, DType):
            return {"type": "mindspore.dtype", "value": item.name}
        if isinstance(item, (list, tuple)):
            return [self._leaf(part, f"{place}.{i}") for i, part in enumerate(item)]
        return {"type": type(item).__name__, "value": item}

    def _tensor(self, values: Any, dtype: str, place: str) -> dict[str, Any]:
        leaf: dict[str, Any] = {"type": "mindspore.Tensor", "dtype": dtype, "shape": list(values.shape)}
        if values.dtype.kind != "c":
            highest, lowest = (values.max().item(), values.min().item()) if values.size else (None, None)
            leaf.update(Max=highest, Min=lowest, Mean=0.0, Norm=0.0)
        if self._task == "tensor" and values.size:
            leaf["data_name"] = f"{place}.npy"
            np.save(self._data / leaf["data_name"], values)
        return leaf


def _list(output: Any) -> list[Any]:
    return output if isinstance(output, list) else [output]
