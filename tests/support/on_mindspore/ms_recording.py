"""Recording of MindSpore in tests: a debugger for each test, and the files that it wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mindspore
import numpy as np
from mindspore import Tensor
from probe_mindspore import PrecisionDebugger


class Recording:
    """A debugger that is the only one of the process while it is used, and the files of its run."""

    def __init__(self, path: Path, **fields: Any) -> None:
        self.path = path
        self.result: Any = None
        config = path.with_name(path.name + ".config.json")
        config.write_text(json.dumps({"dump_path": str(path), **fields}))
        PrecisionDebugger._instance = None
        self.debugger = PrecisionDebugger(config_path=config)

    def start(self, model: Any = None) -> None:
        self.debugger.start(model=model)

    def stop(self) -> None:
        self.debugger.stop()

    def step(self) -> None:
        self.debugger.step()

    def finish(self) -> None:
        self.debugger._recorder.finish()
        PrecisionDebugger._instance = None

    def directory(self, step: int = 0, label: str = "rank") -> Path:
        return self.path / f"step{step}" / label

    def head(self, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
        return json.loads((self.directory(step) / name).read_text())

    def records(self, step: int = 0, name: str = "dump.json") -> dict[str, Any]:
        return self.head(step, name)["data"]

    def parents(self, step: int = 0) -> dict[str, str | None]:
        return json.loads((self.directory(step) / "construct.json").read_text())

    def stacks(self, step: int = 0) -> dict[str, list[str]]:
        groups = json.loads((self.directory(step) / "stack.json").read_text()).values()
        return {name: lines for names, lines in groups for name in names}

    def array(self, leaf: dict[str, Any], step: int = 0) -> np.ndarray[Any, Any]:
        return np.load(self.directory(step) / "dump_tensor_data" / leaf["data_name"])

    @property
    def errors(self) -> str:
        return "\n".join(path.read_text() for path in self.path.rglob("dump_error_info.log"))


@contextmanager
def recording(path: Path, **fields: Any) -> Iterator[Recording]:
    """Record what runs inside, finish the recording, and check that the recorder did not fail."""
    found = Recording(path, **fields)
    try:
        yield found
    finally:
        found.finish()
    assert not found.errors, found.errors


def tensor(*shape: int, seed: int = 0, dtype: str = "float32") -> Tensor:
    """Return a tensor of normal random numbers, times four."""
    return Tensor((np.random.RandomState(seed).normal(size=shape) * 4).astype(dtype))


def recorded(path: Path, function: Any, *inputs: Any, model: Any = None, grad: bool = True, **fields: Any) -> Recording:
    """Record one call of ``function``, with the gradients of all ``inputs`` if it returns one number."""
    with recording(path / "run", **{"task": "tensor", **fields}) as found:
        found.start(model)
        if grad:
            found.result = mindspore.grad(function, tuple(range(len(inputs))))(*inputs)
        else:
            found.result = function(*inputs)
        found.stop()
        found.step()
    return found


def outputs_of(found: Recording, key: str) -> list[Any]:
    """Return the arrays among the outputs of a record."""
    return [None if leaf is None else found.array(leaf) for leaf in found.records()[key]["output"]]


def step_of_the_net(path: Path) -> Recording:
    """Record one training step of the net at level mix, with tensors."""
    from support.on_mindspore.ms_net import Net, batch, training

    with recording(path / "run", task="tensor", level="mix") as found:
        net = Net()
        net.set_train()
        step = training(net)
        found.start(net)
        step(*batch(0))
        found.stop()
        found.step()
    return found
