"""A small net for the tests: convolution, normalisation, attention and MLP, with fixed weights."""

from __future__ import annotations

from typing import Any

import mindspore as ms
import mindspore.mint.nn.functional as F
import numpy as np
from mindspore import Parameter, Tensor, mint, nn, ops


def weight(seed: int, *shape: int) -> Parameter:
    return Parameter(Tensor(np.random.RandomState(seed).normal(0, 0.3, shape).astype(np.float32)))


class Linear(nn.Cell):
    def __init__(self, seed: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight, self.bias = weight(seed, outputs, inputs), weight(seed + 1, outputs)

    def construct(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)


class RMSNorm(nn.Cell):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(size, np.float32)))

    def construct(self, x: Tensor) -> Tensor:
        scale = mint.rsqrt(mint.add(mint.mean(mint.square(x), dim=-1, keepdim=True), 1e-6))
        return mint.mul(mint.mul(x, scale), self.weight)


class Attention(nn.Cell):
    def __init__(self, split: bool) -> None:
        super().__init__()
        self.qkv, self.out = Linear(10, 8, 24), Linear(20, 8, 8)
        self.split = split

    def construct(self, x: Tensor, scale: float = 1.0) -> Tensor:
        b, n, _ = x.shape
        parts = mint.split(self.qkv(x), 8, dim=-1) if self.split else mint.chunk(self.qkv(x), 3, dim=-1)
        q, k, v = (mint.permute(mint.reshape(part, (b, n, 2, 4)), (0, 2, 1, 3)) for part in parts)
        scores = mint.mul(mint.matmul(q, mint.transpose(k, -2, -1)), scale)
        mixed = mint.matmul(F.softmax(scores, dim=-1), v)
        return self.out(mint.reshape(mint.permute(mixed, (0, 2, 1, 3)), (b, n, 8)))


class MLP(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = Linear(30, 8, 16), Linear(40, 16, 8)

    def construct(self, x: Tensor) -> Tensor:
        return self.down(F.silu(self.up(x)))


class Block(nn.Cell):
    def __init__(self, split: bool) -> None:
        super().__init__()
        self.norm1, self.attn, self.norm2, self.mlp = RMSNorm(8), Attention(split), RMSNorm(8), MLP()

    def construct(self, x: Tensor) -> Tensor:
        x = mint.add(x, self.attn(self.norm1(x), scale=0.5))
        return mint.add(x, self.mlp(self.norm2(x)))


class Net(nn.Cell):
    def __init__(self, split: bool = False) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, pad_mode="pad", padding=1, has_bias=True)
        self.bn = nn.BatchNorm2d(8)
        self.block = Block(split)
        self.fc = nn.Dense(8, 5)
        for cell, seed in ((self.conv, 50), (self.fc, 60)):
            cell.weight.set_data(weight(seed, *cell.weight.shape))
            cell.bias.set_data(weight(seed + 1, *cell.bias.shape))

    def construct(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(x)))
        x = mint.permute(mint.reshape(x, (x.shape[0], 8, -1)), (0, 2, 1))
        return self.fc(mint.mean(self.block(x), dim=1))


def batch(seed: int, size: int = 2) -> tuple[Tensor, Tensor]:
    random = np.random.RandomState(seed)
    images = Tensor(random.normal(size=(size, 3, 4, 4)).astype(np.float32))
    return images, Tensor(random.randint(0, 5, size).astype(np.int32))


def training(net: nn.Cell) -> Any:
    """Return ``step(x, y)``, which updates the parameters by Adam and returns (loss, output), gradients."""
    optimizer = nn.Adam(net.trainable_params(), learning_rate=0.01)

    def forward(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        output = net(x)
        return ops.cross_entropy(output, y), output

    gradients = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)

    def step(x: Tensor, y: Tensor) -> Any:
        (loss, output), found = gradients(x, y)
        optimizer(found)
        return loss, output, found

    return step
