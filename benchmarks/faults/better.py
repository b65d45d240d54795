"""Pairs in which the target is the better one: with ``--reference`` they agree, and the sentence says so.

The golden computes less precisely than the target. The reference is the target's program in float64, unless a
pair says that it is the golden's, whose flaw disappears in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from faults import nets
from faults.cases import SEED, Cases, Forward, Training

BETTER = Cases(may_differ=True)
pair = BETTER.case


class Flawed(nn.Module):
    """A layer whose golden computes by one function and whose target by another."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Return what the function computes."""
        return self.function(x)


def surrounded(function: Callable[[Tensor], Tensor], *, size: int = 32, scale: float = 1.0) -> Forward:
    """Return a network with a layer that computes by a function, between others.

    Args:
        function: The function.
        size: The number of features.
        scale: The factor of the values that the function receives.
    """
    torch.manual_seed(SEED)
    before = [nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size)]
    behind = [nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size), nn.Tanh(), nn.Linear(size, size)]
    with torch.no_grad():
        before[-1].weight.mul_(scale)  # type: ignore[operator]
    net = nn.Sequential(*before, Flawed(function), *behind)
    return Forward(net, {"input": nets.reals(8, size)})


def rounded(x: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return values that were kept in 16 bits; with --double nothing is rounded."""
    return x.to(dtype).to(x.dtype)


@pair("B01", "The golden rounds the inputs of matrix products, as TF32 does; the target does not.")
def rounded_products(better: bool) -> Forward:
    weight = torch.randn(32, 32, generator=torch.Generator().manual_seed(1))

    def multiply(x: Tensor) -> Tensor:
        w = weight.to(x.dtype)
        return x @ w if better else rounded(x, torch.float16) @ rounded(w, torch.float16)

    return surrounded(multiply)


@pair(
    "B02",
    "The golden keeps a stream of large values in bfloat16, which loses details; the target in float32.",
)
def coarse_stream(better: bool) -> Forward:
    def centre(x: Tensor) -> Tensor:
        stream = x.to(torch.float32 if better else torch.bfloat16) * 0.1 + 30
        return (stream - stream.mean(-1, keepdim=True)).float() * 10

    return surrounded(centre)


@pair(
    "B03",
    "The golden computes softmax without subtracting the maximum, which overflows; the target subtracts it.",
)
def naive_softmax(better: bool) -> Forward:
    def softmax(x: Tensor) -> Tensor:
        shifted = x - x.max(-1, keepdim=True).values if better else x - x.max(-1, keepdim=True).values * 0.1
        parts = torch.exp(shifted)
        return parts / parts.sum(-1, keepdim=True)

    return surrounded(softmax, scale=200)


@pair("B04", "The golden computes the variance as E[x^2] - E[x]^2; the target subtracts the mean first.")
def cancelling_variance(better: bool) -> Forward:
    def normalise(x: Tensor) -> Tensor:
        x = x + 300
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        square = (centred if better else x).pow(2).mean(-1, keepdim=True)
        return centred * torch.rsqrt(square - (mean - mean if better else mean).pow(2) + 1e-5)

    return surrounded(normalise)


@pair("B05", "The golden adds small numbers to a large one, which loses them; the target adds them up first.")
def lost_summands(better: bool) -> Forward:
    values = torch.rand(8, 12, generator=torch.Generator().manual_seed(2)) * 6e-3

    def stretch(x: Tensor) -> Tensor:
        many, base = values.to(x.dtype), 1e5
        if better:
            return x * (1 + 10 * many.sum(-1, keepdim=True))
        total = torch.full_like(many[:, :1], base)
        for column in many.split(1, -1):
            total = total + column
        return x * (1 + 10 * (total - base))

    return surrounded(stretch)


@pair("B06", "The golden approximates GELU by tanh; the target and the reference compute it exactly.")
def approximate_gelu(better: bool) -> Forward:
    return surrounded(lambda x: F.gelu(x, approximate="none" if better else "tanh"), scale=3)


@pair(
    "B07",
    "The golden's gradients underflow in float16, for its loss is not scaled; the target is in float32.",
)
def unscaled_gradients(better: bool) -> Training:
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e4, foreach=False)
    batch, dtype = nets.reals(16, 32), torch.float32 if better else torch.float16

    def step(number: int) -> None:
        x = batch.to(dtype)
        for layer in model:
            if isinstance(layer, nn.Linear):
                x = F.linear(x, layer.weight.to(dtype), layer.bias.to(dtype))
            else:
                x = layer(x)
        (x.float().mean() * 1e-5).backward()
        optimizer.step()
        optimizer.zero_grad()

    return Training(model, step)


@pair("B08", "The golden computes log(1 + x) of small numbers; the target uses log1p.")
def naive_log1p(better: bool) -> Forward:
    def grow(x: Tensor) -> Tensor:
        small = torch.exp(x) * 1e-5
        return (torch.log1p(small) if better else torch.log(1 + small)) * 1e5

    return surrounded(grow)


@pair("B09", "The golden takes the logarithm of a softmax, which underflows; the target uses log_softmax.")
def log_of_softmax(better: bool) -> Forward:
    def likelihood(x: Tensor) -> Tensor:
        return F.log_softmax(x, -1) if better else torch.log(torch.softmax(x, -1) + 1e-12)

    return surrounded(likelihood, scale=60)


@pair("B10", "The golden computes an RMS norm in float16, whose squares overflow; the target in float32.")
def half_norm(better: bool) -> Forward:
    def norm(x: Tensor) -> Tensor:
        values = x if better else x.half()
        return (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6)).float()

    return surrounded(norm, scale=2000)


@pair("B11", "The golden computes the angles of rotary embeddings in bfloat16; the target in float32.")
def coarse_positions(better: bool) -> Forward:
    def rotate(x: Tensor) -> Tensor:
        places = torch.arange(500, 508, dtype=torch.float32 if better else torch.bfloat16)
        rates = torch.exp(torch.arange(16, dtype=torch.float32) * -(math.log(10_000) / 16)).to(places.dtype)
        angles = (places[:, None] * rates).float()
        first, second = x.chunk(2, -1)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)

    return surrounded(rotate)


@pair("B12", "The golden computes distances from squared norms, which cancel; the target from differences.")
def cancelling_distances(better: bool) -> Forward:
    def distances(x: Tensor) -> Tensor:
        near = x * 1e-3 + 5
        other = near.flip(0)
        if better:
            square = (near - other).pow(2).sum(-1, keepdim=True)
        else:
            square = (near.pow(2) + other.pow(2) - 2 * near * other).sum(-1, keepdim=True).abs()
        return x * square.sqrt() * 1e3

    return surrounded(distances)


@pair(
    "B13",
    "The golden keeps its weights in bfloat16, and loses small updates; the target keeps them in float32.",
)
def lost_updates(better: bool) -> Training:
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 8))
    batch = nets.reals(16, 32)

    def step(number: int) -> None:
        model(batch).pow(2).mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                assert parameter.grad is not None
                moved = parameter - 0.01 * parameter.grad
                parameter.copy_(moved if better else rounded(moved))
                parameter.grad = None

    return Training(model, step, 3)


@pair("B14", "The golden inverts a matrix that is nearly singular; the target solves the equations.")
def inverted(better: bool) -> Forward:
    size = 32
    base = torch.randn(size, size, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    left, _, right = torch.linalg.svd(base)
    matrix = left @ torch.diag(torch.logspace(0, -4, size, dtype=torch.float64)) @ right

    def solve(x: Tensor) -> Tensor:
        factors = matrix.to(x.dtype)
        products = x @ factors.T
        if better:
            return torch.linalg.solve(factors, products.T).T
        return products @ (torch.linalg.inv(factors.T @ factors) @ factors.T).T

    return surrounded(solve)


@pair("B15", "The golden keeps a moving average in bfloat16; the target keeps it in float32.")
def coarse_average(better: bool) -> Training:
    torch.manual_seed(SEED)
    model = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 8))
    state: dict[str, Any] = {"average": torch.zeros(64)}
    batch = nets.reals(16, 32)
    context = nullcontext

    def step(number: int) -> None:
        hidden = model[1](model[0](batch + number))
        average = state["average"] * 0.99 + hidden.detach().mean(0) * 0.01
        state["average"] = average if better else rounded(average, torch.bfloat16)
        model[2](hidden - state["average"] * 20).pow(2).mean().backward()
        for parameter in model.parameters():
            parameter.grad = None

    return Training(model, step, 3, context=context)


REFERENCE_IS_GOLDEN = frozenset({"B01", "B02", "B07", "B10", "B11", "B13", "B15"})
"""Pairs whose reference is the golden's program, as users record it first."""
