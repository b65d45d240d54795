"""Small models with a fault that can be switched on; their weights are the same at every call."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, WORDS = 32, 4, 50


class Clamp(torch.autograd.Function):
    """An operator of the user's own; its fault clamps too tightly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, is_faulty: bool) -> Tensor:
        """Return ``x`` clamped to [-3, 3]."""
        limit = torch.full((len(x),) + (1,) * (x.ndim - 1), 0.5 if is_faulty else 3.0, dtype=x.dtype)
        ctx.save_for_backward(x.abs() <= limit)
        return torch.minimum(torch.maximum(x, -limit), limit)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """Return the gradient where nothing was clamped."""
        return gradients[0] * ctx.saved_tensors[0], None


class Block(nn.Module):
    """A layer of a transformer; ``folded`` merges samples and heads as fused kernels do."""

    def __init__(self, fault: str = "", *, folded: bool = False) -> None:
        super().__init__()
        self.fault, self.folded = fault, folded
        self.norm = nn.LayerNorm(WIDTH, eps=1e-2 if fault == "eps" else 1e-5)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second_norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        """Return the attention of heads, of shape (samples, heads, tokens, size)."""
        size = q.shape[-1]
        if self.folded:
            shape = q.shape
            q, k, v = (x.reshape(-1, *shape[2:]) for x in (q, k, v))
            scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(size)
            scores = scores.view(*shape[:3], -1) + (1 - mask) * -1e9
            weights = scores.softmax(-1).view(-1, shape[2], scores.shape[-1])
            return torch.bmm(weights, v).view(shape)
        scores = q @ k.transpose(-2, -1) / (math.sqrt(size) if self.fault != "scale" else size)
        scores = scores.masked_fill(mask == 0, -1e9)
        weights = scores.softmax(-2 if self.fault == "axis" else -1)
        return weights @ (v.flip(1) if self.fault == "heads" else v)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return ``x`` after attention and the perceptron."""
        samples, tokens, width = x.shape
        parts = self.qkv(self.norm(x)).chunk(3, -1)
        q, k, v = (part.view(samples, tokens, HEADS, -1).transpose(1, 2) for part in parts)
        mixed = self.attend(q, k, v, mask).transpose(1, 2).reshape(samples * tokens, width)
        x = x + self.out(mixed).view(samples, tokens, width)
        inner = self.up(self.second_norm(x))
        inner = F.gelu(inner, approximate="tanh" if self.fault == "gelu" else "none")
        return x + self.down(Clamp.apply(inner, self.fault == "clamp"))


class Decoder(nn.Module):
    """A language model that takes ids, positions and a mask."""

    def __init__(self, fault: str = "", *, folded: bool = False) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.blocks = nn.ModuleList([Block("", folded=folded), Block(fault, folded=folded)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        """Return the logits."""
        x = self.words(ids) + self.places(positions)
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


class SequenceFirst(nn.Module):
    """An encoder of shape (tokens, samples, width) with the attention of torch."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.words = nn.Embedding(WORDS, WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Return one vector a sample; ``ids`` has the shape (samples, tokens)."""
        x = self.words(ids.t())
        x = self.norm(x + self.attention(x, x, x, need_weights=True)[0])
        pooled = x.amax(0) if self.fault == "pool" else x.mean(0)
        return self.head(pooled)


class Convolutional(nn.Module):
    """A network of two convolutions with batch norms."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2)
        self.norm = nn.BatchNorm2d(8, eps=0.1 if fault == "eps" else 1e-5)
        self.head = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        x = F.relu(self.norm(self.first(x)))
        x = F.leaky_relu(self.second(x), 0.2 if self.fault == "slope" else 0.01)
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class Recurrent(nn.Module):
    """A recurrent network whose states have the samples along their second axis."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.fault = fault
        self.words, self.cells = nn.Embedding(WORDS, WIDTH), nn.GRU(WIDTH, WIDTH, 2, batch_first=True)
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, ids: Tensor) -> Tensor:
        """Return the logits of sequences."""
        outputs, states = self.cells(self.words(ids))
        last = outputs[:, 0] if self.fault == "last" else outputs[:, -1]
        return self.head(last + states[0])


class Vision(nn.Module):
    """A transformer of patches with a token of its own for each image."""

    def __init__(self, fault: str = "") -> None:
        super().__init__()
        self.patches, self.own = nn.Conv2d(3, WIDTH, 4, stride=4), nn.Parameter(torch.zeros(1, 1, WIDTH))
        self.places = nn.Parameter(torch.randn(1, 10, WIDTH))
        self.block, self.head = Block(fault), nn.Linear(WIDTH, 10)
        self.fault = fault

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.own.expand(len(x), -1, -1), x], 1) + self.places
        mask = torch.ones(1, 1, x.shape[1], x.shape[1])
        return self.head(self.block(x, mask)[:, 1 if self.fault == "token" else 0])


def build(kind: type[nn.Module], fault: str = "", **settings: Any) -> nn.Module:
    """Return a model in evaluation mode, with the same random weights at every call."""
    torch.manual_seed(0)
    model = kind(fault, **settings)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None and module.running_var is not None
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 2)
    return model.eval()
