"""Models of torch's own layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_
from torch.utils.checkpoint import checkpoint

from support.programs.training import (
    BOTH,
    VOCABULARY,
    WIDTH,
    Built,
    StepFunction,
    classes,
    fit,
    next_word,
    program,
    reals,
    words,
)


class Residual(nn.Module):
    """Two convolutions around a shortcut; the rectifiers work in place."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outer)
        self.second = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outer)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = nn.Sequential(nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.norm1(self.first(x)))
        y = self.norm2(self.second(y))
        y += self.shortcut(x)
        return self.relu(y)


@program()
def resnet() -> Built:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(16, 5),
    )
    step = fit(reals(3, 16, 16), classes(5), F.cross_entropy)
    return model, step, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True)


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = cell(WIDTH, WIDTH, 2, batch_first=True, dropout=0.1)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, batch: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(batch))[0])


def recurrent(cell: type[nn.RNNBase]) -> Built:
    model, batches = Recurrent(cell), words()
    return model, fit(batches, batches, next_word), torch.optim.Adam(model.parameters(), lr=1e-2)


@program()
def lstm() -> Built:
    return recurrent(nn.LSTM)


@program()
def gru() -> Built:
    return recurrent(nn.GRU)


def mlp() -> tuple[nn.Module, StepFunction]:
    model = nn.Sequential(
        nn.Linear(WIDTH, 48),
        nn.ReLU(inplace=True),
        nn.Dropout(0.1),
        nn.Linear(48, 48),
        nn.GELU(),
        nn.Linear(48, 5),
    )
    return model, fit(reals(WIDTH), classes(5), F.cross_entropy)


@program()
def mlp_sgd() -> Built:
    model, step = mlp()
    return model, step, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


@program()
def mlp_adamw() -> Built:
    """With the gradients clipped before the optimizer takes them."""
    model, step = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=True)

    def clip(*_: object) -> None:
        clip_grad_norm_(model.parameters(), 0.5, foreach=True)

    optimizer.register_step_pre_hook(clip)
    return model, step, optimizer


class Block(nn.Module):
    """A layer that takes and gives two values, and works in place."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 48), nn.Linear(48, WIDTH)
        self.relu, self.dropout = nn.ReLU(inplace=True), nn.Dropout(0.1)

    def forward(self, x: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        y = self.down(self.dropout(self.relu(self.up(self.norm(x)))))
        y += x
        return y, total + y * x


class Blocks(nn.Module):
    """A stack of layers, checkpointed by hand where that is asked for."""

    reentrant: bool | None = None

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, VOCABULARY)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def gradient_checkpointing_enable(self, settings: dict[str, bool]) -> None:
        self.reentrant = settings["use_reentrant"]

    def forward(self, batch: Tensor) -> Tensor:
        x = self.embed(batch)
        total = x * 0.5
        for block in self.blocks:
            if self.reentrant is None:
                x, total = block(x, total)
            else:
                x, total = checkpoint(block, x, total, use_reentrant=self.reentrant)
        return self.head(x + total)


@program(checkpoints=BOTH)
def blocks() -> Built:
    model, batches = Blocks(), words()
    return model, fit(batches, batches, next_word), torch.optim.AdamW(model.parameters(), lr=1e-2)
