"""Two nets in both frameworks, of each one's own layers and methods: a transformer and a convolutional net.

They share their weights, by name and position, and what they compute is the same.
"""

from __future__ import annotations

import zlib
from typing import Any

import mindspore as ms
import numpy as np
import torch
import torch.nn.functional as F
from mindspore import Tensor, nn, ops
from torch import nn as tnn

WORDS, WIDTH, HEADS, LENGTH, CLASSES = 17, 16, 2, 6, 5
NAMES = {"gamma": "weight", "beta": "bias", "embedding_table": "weight"}
MASK = np.triu(np.ones((LENGTH, LENGTH), bool), 1)


def values(name: str, shape: Any) -> np.ndarray[Any, Any]:
    """The weight of a name, the same for both frameworks."""
    path, _, own = name.rpartition(".")
    name = f"{path}.{NAMES.get(own, own)}"
    random = np.random.RandomState(zlib.crc32(name.encode()) % 2**31).normal(0, 0.1, shape)
    return (random + (name.endswith("norm.weight"))).astype(np.float32)


# -- MindSpore ---------------------------------------------------------------------------------------


class MsAttention(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.o = nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH), nn.Dense(WIDTH, WIDTH)
        self.v = nn.Dense(WIDTH, WIDTH, has_bias=False)

    def construct(self, x: Any, mask: Any) -> Any:
        batch, length, _ = x.shape

        def heads(y: Any) -> Any:
            return y.view(batch, length, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = ops.matmul(q, k.swapaxes(-1, -2)) / (WIDTH // HEADS) ** 0.5
        weights = ops.softmax(scores.masked_fill(mask, -1e9), -1)
        return self.o((weights @ v).transpose(0, 2, 1, 3).reshape(batch, length, WIDTH))


class MsBlock(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.second_norm = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.attention, self.act = MsAttention(), nn.GELU(approximate=False)
        self.up, self.down = nn.Dense(WIDTH, 2 * WIDTH), nn.Dense(2 * WIDTH, WIDTH)

    def construct(self, x: Any, mask: Any) -> Any:
        x = x + self.attention(self.first_norm(x), mask)
        return x + self.down(self.act(self.up(self.second_norm(x))))


class MsTransformer(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.CellList([MsBlock(), MsBlock()])
        self.last_norm = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.head = nn.Dense(WIDTH, WORDS, has_bias=False)

    def construct(self, words: Any) -> Any:
        x = self.words(words)
        for block in self.blocks:
            x = block(x, Tensor(MASK))
        return self.head(self.last_norm(x)).reshape(-1, WORDS)


class MsConvolutional(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.batch_norm, self.relu, self.pool = nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2, 2)
        self.second = nn.Conv2d(8, 8, 3, pad_mode="pad", padding=1, has_bias=False)
        self.group_norm, self.mean = nn.GroupNorm(2, 8), nn.AvgPool2d(2, 2)
        self.leaky, self.gate, self.flat = nn.LeakyReLU(0.1), nn.Sigmoid(), nn.Flatten()
        self.hidden, self.tanh, self.head = nn.Dense(32, 12), nn.Tanh(), nn.Dense(12, CLASSES)

    def construct(self, x: Any) -> Any:
        x = self.pool(self.relu(self.batch_norm(self.first(x))))
        y = self.group_norm(self.second(x))
        x = self.flat(self.mean(x * self.gate(y) + self.leaky(y)))
        return self.head(self.tanh(self.hidden(x)))


def mindspore_training(net: nn.Cell) -> Any:
    """``step(inputs, labels)``: the loss; the parameters are updated by Adam."""
    for name, parameter in net.parameters_and_names():
        if "moving" not in name:
            parameter.set_data(Tensor(values(name, parameter.shape)))
    net.set_train()
    optimizer = nn.Adam(net.trainable_params(), 0.01)

    def forward(x: Any, y: Any) -> Any:
        output = net(x)
        return ops.cross_entropy(output, y) + ops.softmax(output, -1).square().mean()

    gradients = ms.value_and_grad(forward, None, optimizer.parameters)

    def step(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
        loss, found = gradients(Tensor(x), Tensor(y))
        optimizer(found)
        return float(loss.asnumpy())

    return step


# -- PyTorch -----------------------------------------------------------------------------------------


class Attention(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.o = tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, WIDTH), tnn.Linear(WIDTH, WIDTH)
        self.v = tnn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Any, mask: Any) -> Any:
        batch, length, _ = x.shape

        def heads(y: Any) -> Any:
            return y.view(batch, length, HEADS, WIDTH // HEADS).permute(0, 2, 1, 3)

        q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) / (WIDTH // HEADS) ** 0.5
        weights = torch.softmax(scores.masked_fill(mask, -1e9), -1)
        return self.o((weights @ v).permute(0, 2, 1, 3).reshape(batch, length, WIDTH))


class Block(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first_norm, self.second_norm = tnn.LayerNorm(WIDTH), tnn.LayerNorm(WIDTH)
        self.attention, self.act = Attention(), tnn.GELU()
        self.up, self.down = tnn.Linear(WIDTH, 2 * WIDTH), tnn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Any, mask: Any) -> Any:
        x = x + self.attention(self.first_norm(x), mask)
        return x + self.down(self.act(self.up(self.second_norm(x))))


class Transformer(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = tnn.Embedding(WORDS, WIDTH)
        self.blocks = tnn.ModuleList([Block(), Block()])
        self.last_norm, self.head = tnn.LayerNorm(WIDTH), tnn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words: Any) -> Any:
        x = self.words(words)
        for block in self.blocks:
            x = block(x, torch.from_numpy(MASK))
        return self.head(self.last_norm(x)).reshape(-1, WORDS)


class Convolutional(tnn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = tnn.Conv2d(3, 8, 3, padding=1)
        self.batch_norm, self.relu, self.pool = tnn.BatchNorm2d(8), tnn.ReLU(), tnn.MaxPool2d(2, 2)
        self.second = tnn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.group_norm, self.mean = tnn.GroupNorm(2, 8), tnn.AvgPool2d(2, 2)
        self.leaky, self.gate, self.flat = tnn.LeakyReLU(0.1), tnn.Sigmoid(), tnn.Flatten()
        self.hidden, self.tanh, self.head = tnn.Linear(32, 12), tnn.Tanh(), tnn.Linear(12, CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.relu(self.batch_norm(self.first(x))))
        y = self.group_norm(self.second(x))
        x = self.flat(self.mean(x * self.gate(y) + self.leaky(y)))
        return self.head(self.tanh(self.hidden(x)))


def torch_training(net: tnn.Module) -> Any:
    """The same step, of PyTorch."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.from_numpy(values(name, parameter.shape)))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)

    def step(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> float:
        output = net(torch.from_numpy(x))
        loss = F.cross_entropy(output, torch.from_numpy(y).long())
        loss = loss + torch.softmax(output, -1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def batch(name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the inputs of a net and their targets."""
    random = np.random.RandomState(3)
    if name == "transformer":
        words = random.randint(0, WORDS, (3, LENGTH)).astype(np.int32)
        return words, random.randint(0, WORDS, 3 * LENGTH).astype(np.int32)
    images = random.normal(size=(4, 3, 8, 8)).astype(np.float32)
    return images, random.randint(0, CLASSES, 4).astype(np.int32)


NETS: dict[str, tuple[Any, Any]] = {
    "transformer": (MsTransformer, Transformer),
    "convolutional": (MsConvolutional, Convolutional),
}
