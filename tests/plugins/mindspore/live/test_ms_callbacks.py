"""Training by ``mindspore.train.Model`` that callbacks record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

mindspore = pytest.importorskip("mindspore")

from mindspore import nn  # noqa: E402
from mindspore.dataset import GeneratorDataset  # noqa: E402
from mindspore.train import Model  # noqa: E402
from probe_mindspore import MsprobeInitStep, MsprobeStep  # noqa: E402
from support.on_mindspore.ms_recording import recording  # noqa: E402


class Net(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Dense(4, 2, weight_init="ones", bias_init="zeros")

    def construct(self, x: Any) -> Any:
        return self.fc(x)


def iterate_batches() -> Iterator[tuple[Any, Any]]:
    for number in range(3):
        yield np.full((4,), number, np.float32), np.ones((2,), np.float32)


def train(*callbacks: Any) -> Any:
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
    net = Net()
    model = Model(net, nn.MSELoss(), nn.SGD(net.trainable_params(), 0.01))
    data = GeneratorDataset(iterate_batches, ["x", "y"], shuffle=False, num_parallel_workers=1).batch(1)
    model.train(1, data, callbacks=[*callbacks], dataset_sink_mode=False)
    return net.fc.weight.asnumpy()


def test_each_training_step_is_a_step_of_the_run(tmp_path: Path) -> None:
    expected = train()
    with recording(tmp_path / "run", level="mix") as found:
        weight = train(MsprobeStep(found.debugger))
    np.testing.assert_array_equal(weight, expected)
    for step in range(3):
        assert "Cell.fc.Dense.forward.0" in found.records(step)
        assert any(name.startswith(("Functional", "Mint", "Primitive")) for name in found.records(step))
    assert not found.directory(3).exists()


def test_a_resumed_training_continues_the_numbers(tmp_path: Path) -> None:
    with recording(tmp_path / "run", level="L0") as found:
        arguments = SimpleNamespace(cur_step_num=7)
        MsprobeInitStep().on_train_begin(SimpleNamespace(original_args=lambda: arguments))
        train(MsprobeStep(found.debugger))
    assert [step for step in range(12) if found.directory(step).exists()] == [7, 8, 9]
