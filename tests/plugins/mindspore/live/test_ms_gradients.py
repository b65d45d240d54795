"""The task grad_probe with the optimizers of MindSpore."""

from __future__ import annotations

import atexit
import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
pytest.importorskip("probe_watch")

from mindspore import Tensor, nn  # noqa: E402
from mindspore.experimental import optim  # noqa: E402
from probe_mindspore import PrecisionDebugger  # noqa: E402
from probe_watch import compare_gradients  # noqa: E402

from probe_core.errors import UserError  # noqa: E402

STEPS = 3


@pytest.fixture(autouse=True, scope="module")
def blocking() -> None:
    ms.runtime.launch_blocking()


@contextmanager
def debugging(path: Path, **fields: Any) -> Iterator[Any]:
    PrecisionDebugger._instance = None
    config = path.parent / f"{path.name}.json"
    config.write_text(json.dumps({"task": "grad_probe", "dump_path": str(path), "grad_probe": fields}))
    debugger = PrecisionDebugger(config)
    try:
        yield debugger
    finally:
        atexit.unregister(debugger._recorder.finish)
        debugger._recorder.finish()
        PrecisionDebugger._instance = None


OPTIMIZERS = {
    "SGD": lambda p: nn.SGD(p, 0.1),
    "Adam": lambda p: nn.Adam(p, 0.1),
    "experimental": lambda p: optim.AdamW(p, 0.1),
}


def train(optimizer_name: str, debugger: Any = None, *, flipped_step: int = STEPS) -> tuple[Any, list[Any]]:
    """Train two layers; return the bits of the parameters, and the gradients of each step."""
    ms.set_seed(0)
    net = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 2))
    optimizer = OPTIMIZERS[optimizer_name](net.trainable_params())
    if debugger is not None:
        debugger.monitor(optimizer)
    forward = ms.value_and_grad(lambda x: (net(x) ** 2).mean(), None, optimizer.parameters)
    recorded = []
    for step in range(STEPS):
        x = Tensor(np.random.default_rng(step).normal(size=(5, 4)).astype(np.float32))
        gradients = list(forward(x)[1])
        if step >= flipped_step:
            gradients[2] = -gradients[2]
        recorded.append([gradient.asnumpy() for gradient in gradients])
        optimizer(tuple(gradients))
    return [parameter.asnumpy().tobytes() for parameter in net.trainable_params()], recorded


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_are_recorded_and_the_training_has_the_same_bits(name: str, tmp_path: Path) -> None:
    with debugging(tmp_path / "run", grad_level="L2") as debugger:
        with_task, gradients = train(name, debugger)
    assert with_task == train(name)[0]
    for step in range(STEPS):
        text = (tmp_path / "run" / "rank0" / f"grad_summary_{step}.csv").read_text("utf-8-sig")
        rows = list(csv.DictReader(text.splitlines()))
        assert [row["param_name"] for row in rows] == ["0.weight", "0.bias", "2.weight", "2.bias"]
        for row, gradient in zip(rows, gradients[step], strict=True):
            assert float(row["max"]) == gradient.max() and row["shape"] == str(list(gradient.shape))
            assert np.isclose(float(row["norm"]), np.linalg.norm(gradient.astype(np.float64)))
            signs = np.load(tmp_path / "run" / "rank0" / f"step{step}" / f"{row['param_name']}.npy")
            assert np.array_equal(signs, gradient > 0)


def test_a_flipped_gradient_is_named(tmp_path: Path) -> None:
    for name, step in (("target", 1), ("golden", STEPS)):
        with debugging(tmp_path / name) as debugger:
            train("SGD", debugger, flipped_step=step)
    comparison = compare_gradients(tmp_path / "target", tmp_path / "golden")
    assert comparison.sentence.startswith("SUSPICIOUS: 2.weight in step 1: 0 % of the gradient signs agree")


def test_a_network_and_graph_mode_are_refused(tmp_path: Path) -> None:
    net = nn.Dense(2, 2)
    with debugging(tmp_path / "run") as debugger:
        with pytest.raises(UserError, match="needs the optimizer for MindSpore, not Dense"):
            debugger.monitor(net)
        ms.set_context(mode=ms.GRAPH_MODE)
        try:
            with pytest.raises(UserError, match="GRAPH_MODE"):
                debugger.monitor(nn.SGD(net.trainable_params(), 0.1))
        finally:
            ms.set_context(mode=ms.PYNATIVE_MODE)
