"""A small training of MindSpore for the tests of watches, with faults that a test can plant."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops

from support.on_mindspore.ms_net import weight

OPTIMIZERS: dict[str, Callable[[Any], nn.Cell]] = {
    "adam": lambda parameters: nn.Adam(parameters, 1e-3),
    "momentum": lambda parameters: nn.Momentum(parameters, 1e-3, 0.9),
    "experimental": lambda parameters: ms.experimental.optim.Adam(parameters, 1e-3),
}


class Scaled(nn.Cell):
    """A dense layer whose output and gradient a test can scale."""

    def __init__(self, seed: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.dense = nn.Dense(inputs, outputs)
        self.dense.weight.set_data(weight(seed, outputs, inputs))
        self.dense.bias.set_data(weight(seed + 1, outputs))
        self.output_scale = self.gradient_scale = 1.0

    def construct(self, x: Tensor) -> Tensor:
        y = self.dense(x)
        if self.output_scale != 1.0:
            y = y * self.output_scale
        if self.gradient_scale != 1.0:
            y.register_hook(lambda gradient: gradient * self.gradient_scale)
        return y


class Training:
    """A training on noisy targets of a fixed function; every step is determined by its number.

    Args:
        seed: The random seed of the data.
        optimizer: A name in ``OPTIMIZERS``.
        clip: The largest norm of the gradients; None to clip nothing.

    Attributes:
        inputs: The factor of the inputs of the next step.
        targets: The factor of its targets.
    """

    def __init__(self, seed: int = 0, optimizer: str = "adam", clip: float | None = None) -> None:
        ms.set_seed(seed)
        self.layers = [Scaled(10, 6, 16), Scaled(20, 16, 16), Scaled(30, 16, 3)]
        first, second, last = self.layers
        self.model = nn.SequentialCell(first, nn.ReLU(), second, nn.ReLU(), last)
        self.optimizer = OPTIMIZERS[optimizer](self.model.trainable_params())
        self.inputs = self.targets = 1.0
        self._seed, self._clip = seed, clip
        self._differentiated = ms.value_and_grad(self._loss, None, self.optimizer.parameters)

    def _loss(self, x: Tensor, y: Tensor) -> Tensor:
        return ops.mse_loss(self.model(x), y)

    def batch(self, number: int) -> tuple[Tensor, Tensor]:
        random = np.random.RandomState(1000 * self._seed + number)
        x = random.normal(size=(16, 6)).astype(np.float32)
        y = np.sin(x[:, :3]) + 0.3 * random.normal(size=(16, 3))
        inputs, targets = self.inputs, self.targets
        self.inputs = self.targets = 1.0
        return Tensor((x * inputs).astype(np.float32)), Tensor((y * targets).astype(np.float32))

    def run(self, number: int) -> Tensor:
        """Run a step and return its loss."""
        loss, gradients = self._differentiated(*self.batch(number))
        if self._clip is not None:
            gradients = ops.clip_by_global_norm(gradients, self._clip)
        self.optimizer(gradients)
        for layer in self.layers:
            layer.output_scale = layer.gradient_scale = 1.0
        return loss

    def bits(self) -> list[bytes]:
        """Return the parameters and the state of the optimizer."""
        values = [*self.model.get_parameters(), *self.optimizer.get_parameters()]
        return [value.asnumpy().tobytes() for value in values]
