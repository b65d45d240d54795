"""Small trainings with a fault that a test plants at some step, and clean ones, for the tests of watches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn


class ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is scaled."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, scale: float) -> torch.Tensor:
        """Return the values."""
        ctx.scale = scale
        return values.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the scaled gradient."""
        return gradient * ctx.scale, None


class Scaled(nn.Module):
    """A layer whose output and gradient a test can scale.

    Attributes:
        output_scale: The factor of the output.
        gradient_scale: The factor of the gradient of the input.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.output_scale = 1.0
        self.gradient_scale = 1.0

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Return the scaled output."""
        output: torch.Tensor = self.linear(values)
        output = ScaledGradient.apply(output, self.gradient_scale)
        return nn.functional.leaky_relu(output) * self.output_scale


@dataclass
class Training:
    """A training of a small net on noisy data.

    Attributes:
        seed: The random seed.
        kind: The optimizer: ``adamw``, ``sgd`` or ``rmsprop``.
        noise: The scale of the noise of the targets.
        is_heavy_tailed: True if that noise has the tails of Student's t distribution with 3 degrees.
        schedule: A function from the step to a factor of the learning rate.
        epoch: Number of steps after which the data repeat; 0 for new data in each step.
    """

    seed: int = 0
    kind: str = "adamw"
    noise: float = 0.3
    is_heavy_tailed: bool = False
    schedule: Callable[[int], float] = lambda _: 1.0
    epoch: int = 0
    model: nn.Sequential = field(init=False)
    optimizer: torch.optim.Optimizer = field(init=False)
    generator: torch.Generator = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        self.model = nn.Sequential(
            nn.Linear(6, 12), Scaled(12), nn.GELU(), Scaled(12), nn.Dropout(0.1), nn.Linear(12, 2)
        )
        makers: dict[str, Any] = {
            "adamw": lambda p: torch.optim.AdamW(p, lr=3e-3),
            "sgd": lambda p: torch.optim.SGD(p, lr=2e-2, momentum=0.9),
            "rmsprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
        }
        self.optimizer = makers[self.kind](self.model.parameters())
        self.rate = float(self.optimizer.param_groups[0]["lr"])
        self.generator = torch.Generator().manual_seed(self.seed + 1)
        self.epochs = [self._draw() for _ in range(self.epoch)]

    def _draw(self) -> tuple[torch.Tensor, torch.Tensor]:
        inputs = torch.randn(16, 6, generator=self.generator)
        noise = torch.randn(16, 2, generator=self.generator)
        if self.is_heavy_tailed:
            squares = torch.randn(16, 2, 3, generator=self.generator).square().mean(2)
            noise = noise / squares.sqrt()
        targets = torch.stack((inputs[:, 0] * inputs[:, 1], inputs[:, 2].sin()), 1)
        return inputs, targets + self.noise * noise

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of a step."""
        return self.epochs[step % self.epoch] if self.epoch else self._draw()

    def loss(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the loss."""
        return (self.model(inputs) - targets).square().mean()

    def run(self, step: int, change: Callable[[int, Training, Batch], None] | None = None) -> float:
        """Run a step, with a function that may change the batch or the training before it.

        Returns:
            The loss.
        """
        inputs, targets = self.batch(step)
        batch = Batch(inputs, targets)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * self.schedule(step)
        if change is not None:
            change(step, self, batch)
        loss = self.loss(batch.inputs, batch.targets)
        loss.backward()
        if batch.before_update is not None:
            batch.before_update()
        nn.utils.clip_grad_norm_(self.model.parameters(), 10.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


@dataclass
class Batch:
    """The batch of a step, and what a test does before the optimizer steps."""

    inputs: torch.Tensor
    targets: torch.Tensor
    before_update: Callable[[], None] | None = None


def warm_up_and_decay(length: int) -> Callable[[int], float]:
    """Return a schedule with a warm-up of a tenth, and a decay by a cosine."""

    def factor(step: int) -> float:
        begin = length // 10
        if step < begin:
            return (step + 1) / begin
        return 0.5 * (1 + math.cos(math.pi * (step - begin) / (length - begin)))

    return factor


def restarts(length: int) -> Callable[[int], float]:
    """Return a schedule that decays by a cosine and begins anew every ``length`` steps."""
    return lambda step: 0.5 * (1 + math.cos(math.pi * (step % length) / length))
