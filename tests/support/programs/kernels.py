"""Small nets to record, and wrong kernels that take the place of torch's own below its API.

Run as a script: ``kernels.py NET DTYPE [FAULT]`` trains a step. The nets compute attention call by call.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, LENGTH, VOCABULARY, LAYERS = 64, 4, 32, 101, 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1)
        )
        scores = q @ k.transpose(-2, -1) / (WIDTH // HEADS) ** 0.5
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        weights = F.softmax(scores.masked_fill(hidden, torch.finfo(scores.dtype).min), -1)
        x = x + self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x)).float()
        return F.cross_entropy(logits[:, :-1].reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))


class Convolutions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1, stride=2), nn.GroupNorm(4, 32), nn.SiLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 10),
        )  # fmt: skip

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.layers(images).float(), torch.arange(images.shape[0]) % 10)


def softmax_in_half(x: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """Softmax with exponentials in float16."""
    powers = (x - x.amax(dim, True)).half().exp().to(x.dtype)
    return powers / powers.sum(dim, True)


def gelu_backward_by_tanh(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """Gradient of GELU's approximation by tanh, whatever was asked for."""
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    tanh = inner.tanh()
    slope = 0.7978845608028654 * (1 + 3 * 0.044715 * x**2)
    return grad * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * slope)


def mm_in_bfloat16(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Product of matrices whose sums are kept in bfloat16."""
    aten = torch.ops.aten  # which is not recorded
    total = aten.zeros([a.shape[0], b.shape[1]], dtype=a.dtype)
    for k in range(a.shape[1]):
        total = aten.addcmul(total, aten.narrow(a, 1, k, 1), aten.narrow(b, 0, k, 1))
    return total


def addmm_in_bfloat16(
    bias: torch.Tensor, a: torch.Tensor, b: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return bias + mm_in_bfloat16(a, b)


def layer_norm_with_wrong_eps(
    x: torch.Tensor, shape: list[int], weight: torch.Tensor, bias: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Layer norm with an eps of 1e-3, whatever is asked for."""
    mean = x.mean(-1, keepdim=True)
    scale = ((x - mean).square().mean(-1, keepdim=True) + 1e-3).rsqrt()
    return (x - mean) * scale * weight + bias, mean, scale


FAULTS: dict[str, dict[str, Callable[..., Any]]] = {
    "softmax": {"_softmax": softmax_in_half},
    "gelu": {"gelu_backward": gelu_backward_by_tanh},
    "matmul": {"addmm": addmm_in_bfloat16},
    "layer_norm": {"native_layer_norm": layer_norm_with_wrong_eps},
}


def planted(fault: str) -> torch.library.Library:
    """Put the kernels of a fault in the place of torch's own on the CPU, as long as the result is kept."""
    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, kernel in FAULTS[fault].items():
            library.impl(name, kernel, "CPU")
    return library


def train(net: str, dtype: str) -> None:
    """Train a step in ``float32``, ``bfloat16`` or under autocast (``autocast``)."""
    torch.manual_seed(1)
    model = Gpt() if net == "gpt" else Convolutions()
    data = torch.randint(0, VOCABULARY, (4, LENGTH)) if net == "gpt" else torch.randn(4, 3, 24, 24)
    if dtype == "bfloat16":
        model = model.to(torch.bfloat16)
        data = data if net == "gpt" else data.to(torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    with torch.autocast("cpu", torch.bfloat16, enabled=dtype == "autocast"):
        loss = model(data)
    loss.backward()
    optimizer.step()


if __name__ == "__main__":
    kept = planted(sys.argv[3]) if len(sys.argv) > 3 else None
    train(*sys.argv[1:3])
