"""Recording changes nothing: losses, outputs, gradients and parameters are bit-equal with and without it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")

from mindspore import Tensor, mint, nn, ops  # noqa: E402
from support.on_mindspore.ms_net import Net, batch, training  # noqa: E402
from support.on_mindspore.ms_recording import recording  # noqa: E402

STEPS = 3


@pytest.fixture(autouse=True, scope="module")
def blocking() -> None:
    ms.runtime.launch_blocking()


def bits(values: Any) -> list[bytes]:
    found = values if isinstance(values, (list, tuple)) else (values,)
    return [part for v in found for part in (bits(v) if isinstance(v, (list, tuple)) else [v.asnumpy().tobytes()])]


def trained(split: bool = False, found: Any = None) -> list[list[bytes]]:
    net = Net(split)
    net.set_train()
    step = training(net)
    results = []
    for number in range(STEPS):
        if found is not None:
            found.start(net)
        results.append(bits(step(*batch(number))))
        if found is not None:
            found.stop()
            found.step()
        results.append(bits([p for p in net.get_parameters()]))
    return results


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_training_is_the_same(tmp_path: Path, level: str, task: str) -> None:
    plain = trained()
    with recording(tmp_path / "run", level=level, task=task) as found:
        recorded = trained(found=found)
    assert recorded == plain
    assert plain[0] != plain[2]  # it does train
    assert len(found.records(2)) > 20
    assert trained() == plain  # nothing stays behind


def test_even_a_wrong_gradient_is_the_same(tmp_path: Path) -> None:
    plain = trained(split=True)
    with recording(tmp_path / "run", level="mix", task="tensor") as found:
        assert trained(split=True, found=found) == plain


OPTIMIZERS = {
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9),
    "SGD": lambda p: nn.SGD(p, 0.1),
    "AdamWeightDecay": lambda p: nn.AdamWeightDecay(p, 0.1),
    "Adam, dynamic": lambda p: nn.Adam(p, nn.cosine_decay_lr(0.0, 0.1, 10, 5, 2)),
}


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_optimizers_are_the_same(tmp_path: Path, name: str) -> None:
    def run(found: Any) -> list[list[bytes]]:
        net = Net()
        optimizer = OPTIMIZERS[name](net.trainable_params())
        gradients = ms.value_and_grad(lambda x, y: ops.cross_entropy(net(x), y), None, optimizer.parameters)
        results = []
        for number in range(2):
            if found is not None:
                found.start(net)
            optimizer(gradients(*batch(number))[1])
            if found is not None:
                found.stop()
                found.step()
            results.append(bits(list(net.get_parameters())))
        return results

    plain = run(None)
    with recording(tmp_path / "run", level="mix") as found:
        assert run(found) == plain


def test_dropout_draws_the_same(tmp_path: Path) -> None:
    x = Tensor(np.ones((4, 8), np.float32))

    def run() -> list[bytes]:
        ms.set_seed(7)
        ms.manual_seed(7)
        net = nn.Dropout(p=0.5)
        net.set_train()
        value, gradient = ms.value_and_grad(lambda x: (net(x) * mint.exp(x)).sum())(x)
        return bits([value, gradient, ops.dropout(x, 0.3)])

    plain = run()
    with recording(tmp_path / "run") as found:
        found.start()
        assert run() == plain
        found.stop()


def test_shared_tensors_and_second_derivatives_are_the_same(tmp_path: Path) -> None:
    x = Tensor(np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4))

    def many_uses(x: Tensor) -> Tensor:
        y = mint.sin(x)
        z = mint.cat([y, y * 3, mint.mul(y, y)], 0) + mint.cat((y, x, y), 0)
        parts = mint.chunk(z, 3, 0)
        return (parts[0] / 3 + parts[2] * parts[1]).sum()

    def run() -> list[bytes]:
        once = ms.grad(many_uses)(x)
        return bits([once, ms.grad(lambda x: ms.grad(many_uses)(x).sum())(x)])

    plain = run()
    with recording(tmp_path / "run", task="tensor") as found:
        found.start()
        assert run() == plain
        found.stop()
