"""A program with a dropout, for tests of random states: ``python ms_dropout.py OUT LEVEL KIND SEED [ORDER]``."""

from __future__ import annotations

import sys
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from probe_mindspore import PrecisionDebugger

STEPS = 2


class Net(nn.Cell):
    """Two layers with fixed weights and a dropout between them.

    Args:
        kind: The dropout: ``cell``, ``function``, ``layer`` (the function, after the
            construction of a layer, which changes its random numbers) or ``none``.
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.second = nn.Dense(4, 8), nn.Dense(8, 2)
        self.drop = nn.Dropout(p=0.5)
        for seed, layer in enumerate((self.first, self.second)):
            weight = np.random.RandomState(seed).normal(size=layer.weight.shape)
            layer.weight.set_data(Tensor(weight.astype(np.float32)))
            layer.bias.set_data(Tensor(np.zeros(layer.bias.shape, np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.kind == "layer":
            nn.Dropout(p=0.5)
        if self.kind == "cell":
            h = self.drop(h)
        elif self.kind != "none":
            h = ops.dropout(h, 0.5)
        return self.second(h)


def batches(order: str) -> np.ndarray[Any, Any]:
    """Return the batches of all steps; those of the order ``reversed`` have their rows reversed."""
    values = np.random.RandomState(5).normal(size=(STEPS, 6, 4)).astype(np.float32)
    return values[:, ::-1].copy() if order == "reversed" else values


def main(out: str, level: str, kind: str, seed: str, order: str = "") -> None:
    """Record the program."""
    if seed != "none":
        ms.set_seed(int(seed))
    net = Net(kind)
    net.set_train()
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    gradients = ms.value_and_grad(lambda x: net(x).sum(), None, optimizer.parameters)
    debugger = PrecisionDebugger(dump_path=out, level=level, task="statistics")
    for batch in batches(order):
        debugger.start(model=net)
        optimizer(gradients(Tensor(batch))[1])
        debugger.stop()
        debugger.step()


if __name__ == "__main__":
    main(*sys.argv[1:])
