"""Faults of operators as they happen, planted: what a device would compute, and the standard that must see it.

Each fault comes with arguments to which it matters. ``right_operators`` has implementations that are right.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

FLOAT32, FLOAT16, BFLOAT16 = "float32", "float16", "bfloat16"
ALL, HALVES = (FLOAT32, FLOAT16, BFLOAT16), (FLOAT16, BFLOAT16)
HIGHER = {torch.float32: torch.float64, torch.float16: torch.float32, torch.bfloat16: torch.float32}
EXACT = ("binary_consistency", "dual_thousandth")
"""Standards whose gradients are drawn from whole numbers: sums of them are exact in every dtype."""

OPERATORS: dict[str, Callable[..., Any]] = {
    "Tensor.__add__": lambda x, y: x + y,
    "Tensor.__mul__": lambda x, y: x * y,
    "Tensor.__matmul__": lambda x, y: x @ y,
}
"""APIs that are recorded under this name where an operator makes the call."""

ASSIGNED = {
    "absolute_threshold": """__add__ add add_ __div__ div div_ divide divide_ __iadd__ __idiv__ __imul__ __isub__
        leaky_relu leaky_relu_ __mul__ mul mul_ prelu __radd__ reciprocal reciprocal_ __rmul__ rsqrt rsqrt_ rsub
        square square_ __sub__ sub sub_""",
    "binary_consistency": """abs abs_ absolute absolute_ argmin bitwise_and bitwise_and_ broadcast_to ceil ceil_ equal
        fill_ flatten floor floor_ gather greater greater_ greater_equal greater_equal_ isfinite isnan less less_
        less_equal less_equal_ logical_and logical_and_ logical_not logical_not_ logical_or logical_or_ masked_fill
        masked_fill_ max_pool3d maximum minimum neg neg_ nonzero not_equal not_equal_ one_hot pad relu reshape round
        round_ select sign sign_ sort tile topk transpose transpose_ tril tril_ triu triu_ type_as""",
    "ulp": """addbmm addbmm_ addmm addmm_ baddbmm baddbmm_ bilinear bmm chain_matmul hspmm linear __matmul__ matmul mm
        mv smm sspaddmm""",
    "dual_thousandth": "conv1d conv2d",
}
"""The facts of the guide's release: which standard judges which API. All others: the benchmark ratio."""


class Given(NamedTuple):
    """The arguments of a call."""

    positional: tuple[Any, ...]
    keywords: dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """An implementation with a fault.

    Attributes:
        name: What it does wrong.
        api: The record's name without its count: ``Functional.softmax``.
        inputs: The arguments of a call to which it matters.
        wrong: The implementation, with the API's own signature.
        seen: The direction in which it shows: ``forward`` or ``backward``.
        dtypes: Those in which it is a fault.
        hidden: Those in which the first stage alone does not call it an error.
    """

    name: str
    api: str
    inputs: Callable[[Draw], Given]
    wrong: Callable[..., Any]
    seen: str = "forward"
    dtypes: tuple[str, ...] = ALL
    hidden: tuple[str, ...] = ()


class Draw:
    """Draws arguments: tensors of one dtype, which ask for a gradient unless they are ``plain``."""

    def __init__(self, dtype: str, seed: int) -> None:
        self.dtype: torch.dtype = getattr(torch, dtype)
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        return (torch.randn(shape, generator=self._generator) * scale).to(self.dtype).requires_grad_()

    def uniform(self, low: float, high: float, *shape: int) -> Tensor:
        drawn = torch.rand(shape, generator=self._generator) * (high - low) + low
        return drawn.to(self.dtype).requires_grad_()

    def whole(self, *shape: int, most: int = 4) -> Tensor:
        drawn = torch.randint(-most, most + 1, shape, generator=self._generator, dtype=self.dtype)
        return drawn.requires_grad_()

    def index(self, size: int, *shape: int) -> Tensor:
        return torch.randint(size, shape, generator=self._generator)

    def plain(self, *values: float) -> Tensor:
        return torch.tensor(values, dtype=self.dtype)

    def denormal(self, *shape: int, least: float = 0.25) -> Tensor:
        """Every other element between ``least`` and twice that of the least normal number."""
        drawn = (torch.rand(shape, generator=self._generator) + 1) * least
        drawn.view(-1)[::2] *= torch.finfo(self.dtype).tiny
        return drawn.to(self.dtype)

    def upstream(self, output: Tensor, standard: str) -> Tensor:
        """The gradient of an output."""
        if standard in EXACT:
            return self.whole(*output.shape).detach()
        return torch.randn(output.shape, generator=self._generator, dtype=self.dtype)


def given(*positional: Any, **keywords: Any) -> Given:
    return Given(positional, keywords)


# -- how faults are made ---------------------------------------------------------------------------


class _Gradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: Any, gradient: Any, *tensors: Tensor) -> Any:
        context.save_for_backward(*tensors)
        context.gradient = gradient
        return value(*tensors)

    @staticmethod
    def backward(context: Any, upstream: Tensor) -> Any:
        return None, None, *context.gradient(upstream, *context.saved_tensors)


def differentiated(value: Callable[..., Any], gradient: Callable[..., Any], *tensors: Tensor) -> Any:
    """``value(*tensors)``, whose gradients are those that ``gradient(upstream, *tensors)`` lists."""
    return _Gradient.apply(value, gradient, *tensors)


def changed(tensor: Tensor, change: Callable[[Tensor], Tensor]) -> Any:
    """The tensor itself, with a gradient that is changed on its way back to it."""
    return differentiated(lambda x: x.view_as(x), lambda upstream, _: [change(upstream)], tensor)


def flushed(tensor: Tensor) -> Tensor:
    """Without denormal numbers."""
    return torch.where(tensor.abs() < torch.finfo(tensor.dtype).tiny, 0, tensor)


def truncated(tensor: Tensor, bits: int) -> Tensor:
    """float32 cut to fewer bits of mantissa."""
    return (tensor.detach().view(torch.int32) >> (23 - bits) << (23 - bits)).view(torch.float32)


def away(tensor: Tensor) -> Tensor:
    """The numbers of 16 bits that are next in magnitude."""
    return (tensor.detach().view(torch.int16) + 1).view(tensor.dtype)


def narrow(tensor: Tensor) -> Tensor:
    """Return a tensor as a unit for 16 bits takes it in."""
    return tensor.half() if tensor.dtype is torch.float32 else tensor


def accumulated(terms: Any) -> Any:
    """The sum in the dtype of the terms, one after the other."""
    total = torch.zeros_like(terms[0])
    for term in terms:
        total = total + term
    return total


def raised(value: Any) -> Any:
    """A floating-point tensor in the dtype of the reference; all else as it is."""
    return value.to(HIGHER.get(value.dtype, value.dtype)) if isinstance(value, Tensor) else value


def standardised(x: Tensor, dims: Any, eps: float, correction: int = 0, outside: float = 0.0) -> Tensor:
    """``(x - mean) / (sqrt(var + eps) + outside)`` in the dtype of the reference."""
    x = raised(x)
    variance = x.var(dims, correction=correction, keepdim=True)
    return (x - x.mean(dims, keepdim=True)) / ((variance + eps).sqrt() + outside)


def per_channel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return x * weight[:, None, None] + bias[:, None, None]


def layer_norm_unbiased(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    return (standardised(x, -1, eps, correction=1) * weight + bias).to(x.dtype)


def layer_norm_of_constants(x: Tensor, shape: Any, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    high: Tensor = raised(x)
    mean, variance = high.mean(-1, keepdim=True).detach(), high.var(-1, correction=0, keepdim=True).detach()
    return ((high - mean) * (variance + eps).rsqrt() * weight + bias).to(x.dtype)


def softmax_without_sum(x: Tensor, dim: int) -> Any:
    return differentiated(lambda x: F.softmax(x, dim), lambda g, x: [g * F.softmax(x, dim)], x)


def batch_norm_biased(x: Tensor, mean: Tensor, var: Tensor, **more: Any) -> Tensor:
    kept = var.clone()
    var.copy_(0.9 * var + 0.1 * raised(x.detach()).var((0, 2, 3), correction=0))
    return F.batch_norm(x, mean, kept, **more)


def batch_norm_eps_outside(
    x: Tensor, mean: Any, var: Any, weight: Tensor, bias: Tensor, eps: float, **_: Any
) -> Tensor:
    return per_channel(standardised(x, (0, 2, 3), 0, outside=eps), weight, bias).to(x.dtype)


def cumsum_by_blocks(x: Tensor, dim: int) -> Tensor:
    return torch.cat([block.cumsum(dim) for block in x.split(64, dim)], dim)


def embedding_overwritten(ids: Tensor, weight: Tensor) -> Any:
    def gradient(upstream: Tensor, weight: Tensor) -> list[Tensor]:
        found = torch.zeros_like(weight)
        for row, line in zip(ids.reshape(-1), upstream.reshape(-1, upstream.shape[-1])):
            found[row] = line
        return [found]

    return differentiated(lambda weight: F.embedding(ids, weight), gradient, weight)


def attention_leaking(q: Tensor, k: Tensor, v: Tensor, **_: Any) -> Tensor:
    seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)


def group_norm_interleaved(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    shape = (len(x), -1, groups, *x.shape[2:])  # channel i is taken to be in group i % groups
    standard = standardised(x.reshape(shape), (1, 3, 4), eps).reshape(x.shape)
    return per_channel(standard, weight, bias).to(x.dtype)


def ties_last(find: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, dim: x.shape[dim] - 1 - find(x.flip(dim), dim)


def rsqrt_guessed(x: Tensor) -> Tensor:
    """The inverse root from a shift of the bits, and one step of Newton's method."""
    wide = x.detach().float()
    guess = (0x5F3759DF - (wide.view(torch.int32) >> 1)).view(torch.float32)
    return (guess * (1.5 - 0.5 * wide * guess * guess)).to(x.dtype)


def prelu_along_the_last_axis(x: Tensor, weight: Tensor) -> Tensor:
    return torch.where(x > 0, x, x * weight)


def relu_one_at_zero(x: Tensor) -> Any:
    return differentiated(F.relu, lambda g, x: [g * (x >= 0)], x)


def maximum_first_takes_all(x: Tensor, y: Tensor) -> Any:
    return differentiated(torch.maximum, lambda g, x, y: [g * (x >= y), g * (x < y)], x, y)


def sorted_unstably(x: Tensor, **_: Any) -> Any:
    values, indices = x.flip(-1).sort(dim=-1, stable=True)
    return values, x.shape[-1] - 1 - indices


def topk_in_place(x: Tensor, k: int) -> Any:
    indices = x.topk(k).indices.sort().values
    return x.gather(-1, indices), indices


def pad_symmetric(x: Tensor, pad: Any, **_: Any) -> Tensor:
    left, right = pad
    return torch.cat([x[..., :left].flip(-1), x, x[..., -right:].flip(-1)], -1)


def conv2d_padded_behind(x: Tensor, w: Tensor, b: Any, stride: int, padding: int) -> Tensor:
    return F.conv2d(F.pad(x, (0, 2 * padding, 0, 2 * padding)), w, b, stride)


def conv2d_groups_interleaved(x: Tensor, w: Tensor, b: Any, *more: int) -> Tensor:
    return F.conv2d(F.channel_shuffle(x, more[-1]), w, b, *more)


def max_pool_of_zeros(pool: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def wrong(x: Tensor, size: int, stride: int, padding: int) -> Tensor:
        return pool(F.pad(x, (padding, padding) * (x.ndim - 2)), size, stride)

    return wrong


# -- the table -------------------------------------------------------------------------------------

# fmt: off
FAULTS: dict[str, tuple[Fault, ...]] = {
    "benchmark_ratio": (
        Fault("drops eps", "Functional.layer_norm",
              lambda d: given(d.normal(8, 64, scale=3e-3), [64], d.normal(64), d.normal(64), 1e-5),
              lambda x, shape, weight, bias, eps: F.layer_norm(x, shape, weight, bias, 0.0)),
        Fault("divides by n - 1", "Functional.layer_norm",
              lambda d: given(d.normal(8, 32), [32], d.normal(32), d.normal(32), 1e-5), layer_norm_unbiased),
        Fault("takes the statistics as constant", "Functional.layer_norm",
              lambda d: given(d.normal(8, 64), [64], d.normal(64), d.normal(64), 1e-5),
              layer_norm_of_constants, seen="backward"),
        Fault("reduces the wrong axis", "Functional.softmax",
              lambda d: given(d.normal(16, 16), -1), lambda x, dim: F.softmax(x, -2)),
        Fault("does not subtract the maximum", "Functional.softmax",
              lambda d: given(d.uniform(80, 100, 4, 16), -1),
              lambda x, dim: (x.float().exp() / x.float().exp().sum(dim, keepdim=True)).to(x.dtype)),
        Fault("does not subtract the sum", "Functional.softmax",
              lambda d: given(d.normal(8, 16), -1), softmax_without_sum, seen="backward"),
        Fault("takes the log of the rounded softmax", "Functional.log_softmax",
              lambda d: given(d.normal(8, 64, scale=40), -1), lambda x, dim: F.softmax(x, dim).log()),
        Fault("approximates by tanh", "Functional.gelu",
              lambda d: given(d.normal(256)), lambda x: F.gelu(x, approximate="tanh"), hidden=(FLOAT32,)),
        Fault("misses a term", "Functional.silu", lambda d: given(d.normal(64)),
              lambda x: differentiated(F.silu, lambda g, x: [g * x.sigmoid()], x), seen="backward"),
        Fault("computes in float16", "Torch.sigmoid", lambda d: given(d.normal(256)),
              lambda x: x.half().sigmoid().to(x.dtype), dtypes=(FLOAT32,), hidden=(FLOAT32,)),
        Fault("updates the running variance without the correction", "Functional.batch_norm",
              lambda d: given(d.normal(2, 3, 2, 2), *(torch.full((3,), v, dtype=d.dtype) for v in (0.0, 1.0)),
                              d.normal(3), d.normal(3), True, 0.1, 1e-5), batch_norm_biased),
        Fault("adds eps outside of the root", "Functional.batch_norm",
              lambda d: given(d.normal(4, 3, 4, 4, scale=3e-3), None, None, d.normal(3), d.normal(3), True, 0.1, 1e-5),
              batch_norm_eps_outside),
        Fault("accumulates in 16 bits", "Torch.sum", lambda d: given(d.uniform(0, 1, 4, 1024), -1),
              lambda x, dim: accumulated(narrow(x).unbind(dim)).to(x.dtype), hidden=(FLOAT16,)),
        Fault("drops the tail", "Torch.mean", lambda d: given(d.uniform(0, 2, 8, 67), -1),
              lambda x, dim: x.narrow(dim, 0, 64).sum(dim) / 67),
        Fault("divides by n", "Torch.var", lambda d: given(d.normal(8, 24), -1),
              lambda x, dim: torch.var(x, dim, correction=0)),
        Fault("loses the carry between blocks", "Torch.cumsum", lambda d: given(d.normal(2, 150), -1), cumsum_by_blocks),
        Fault("counts ignored rows in the mean", "Functional.cross_entropy",
              lambda d: given(d.normal(8, 10), torch.tensor([1, -100, 3, 4, -100, 6, 7, 8])),
              lambda x, target: F.cross_entropy(x, target, reduction="sum") / len(target)),
        Fault("keeps the last of equal indices", "Functional.embedding",
              lambda d: given(d.index(10, 6, 5), d.normal(10, 8)), embedding_overwritten, seen="backward"),
        Fault("gives a gradient to padding", "Functional.embedding",
              lambda d: given(d.index(4, 6, 5), d.normal(4, 8), 0), lambda ids, weight, padding_idx: F.embedding(ids, weight),
              seen="backward"),
        Fault("scales by the dimension, not its root", "Functional.scaled_dot_product_attention",
              lambda d: given(d.normal(2, 2, 8, 16), d.normal(2, 2, 8, 16), d.normal(2, 2, 8, 16)),
              lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1 / q.shape[-1])),
        Fault("sees the next token", "Functional.scaled_dot_product_attention",
              lambda d: given(d.normal(1, 2, 8, 16), d.normal(1, 2, 8, 16), d.normal(1, 2, 8, 16), is_causal=True),
              attention_leaking),
        Fault("goes by exp and log", "Torch.pow", lambda d: given(d.normal(64), 3),
              lambda x, power: (x.log() * power).exp()),
        Fault("flushes denormals", "Torch.log", lambda d: given(d.denormal(64)), lambda x: flushed(x).log()),
        Fault("turns nan into a bound", "Torch.clamp",
              lambda d: given(d.plain(0.5, float("nan"), 3, -2), -1.0, 1.0),
              lambda x, low, high: x.fmax(torch.full_like(x, low)).fmin(torch.full_like(x, high))),
        Fault("ignores align_corners", "Functional.interpolate",
              lambda d: given(d.normal(1, 2, 4, 4), scale_factor=2, mode="bilinear", align_corners=True),
              lambda x, **k: F.interpolate(x, **{**k, "align_corners": False})),
        Fault("counts the padding", "Functional.avg_pool2d",
              lambda d: given(d.normal(1, 2, 6, 6), 3, 2, 1, count_include_pad=False),
              lambda x, *a, **_: F.avg_pool2d(x, *a)),
        Fault("pads with zeros", "Functional.max_pool2d",
              lambda d: given(d.uniform(-2, -1, 1, 2, 6, 6), 3, 2, 1), max_pool_of_zeros(F.max_pool2d)),
        Fault("interleaves the groups", "Functional.group_norm",
              lambda d: given(d.normal(2, 8, 3, 3), 2, d.normal(8), d.normal(8), 1e-5), group_norm_interleaved),
        Fault("overflows", "Functional.softplus", lambda d: given(d.uniform(-100, 100, 64)),
              lambda x: x.exp().add(1).log()),
        Fault("loses writes to one place", "Tensor.scatter_add",
              lambda d: given(d.normal(4, 6), 1, d.index(6, 4, 12), d.normal(4, 12)),
              lambda x, dim, index, source: x + torch.zeros_like(x).scatter(dim, index, source)),
        Fault("takes the sign of the dividend", "Torch.remainder",
              lambda d: given(d.whole(64, most=9), 4.0), torch.fmod),
        Fault("divides by the elements", "Functional.kl_div",
              lambda d: given(d.uniform(-3, -1, 4, 8), d.uniform(0.1, 0.2, 4, 8).detach(), reduction="batchmean"),
              lambda x, target, **_: F.kl_div(x, target, reduction="sum") / x.numel()),
        Fault("overflows in the squares", "Torch.norm", lambda d: given(d.uniform(200, 400, 4, 16), 2, -1),
              lambda x, p, dim: (x * x).sum(dim).sqrt(), dtypes=(FLOAT16,)),
    ),
    "absolute_threshold": (
        Fault("ignores alpha", "Torch.add", lambda d: given(d.normal(8, 8), d.normal(8, 8), alpha=0.5),
              lambda x, y, alpha: x + y),
        Fault("computes in float16", "Tensor.__add__", lambda d: given(d.normal(64), d.normal(64)),
              lambda x, y: (x.half() + y.half()).to(x.dtype), dtypes=(FLOAT32,)),
        Fault("takes 0 / 0 as 0", "Torch.div", lambda d: given(d.plain(0, 1, 0, 3), d.plain(0, 2, 4, 8)),
              lambda x, y: torch.where(x == 0, 0, x / y)),
        Fault("multiplies by the reciprocal", "Tensor.div", lambda d: given(d.denormal(64, least=0.05), d.denormal(64, least=0.05)),
              lambda x, y: x * y.reciprocal()),
        Fault("makes a single step from a guess", "Torch.rsqrt",
              lambda d: given(d.uniform(0.5, 8, 64).detach()), rsqrt_guessed, dtypes=(FLOAT32, FLOAT16),
              hidden=(FLOAT16,)),
        Fault("flushes denormals", "Torch.reciprocal", lambda d: given(d.denormal(64)),
              lambda x: flushed(x).reciprocal()),
        Fault("misses the factor of 2", "Torch.square", lambda d: given(d.normal(64)),
              lambda x: differentiated(torch.square, lambda g, x: [g * x], x), seen="backward"),
        Fault("takes the default slope", "Functional.leaky_relu", lambda d: given(d.normal(64), 0.2),
              lambda x, negative_slope: differentiated(lambda x: F.leaky_relu(x, negative_slope),
                                                       lambda g, x: [torch.where(x > 0, g, g * 0.01)], x),
              seen="backward"),
        Fault("takes the weight along the last axis", "Functional.prelu",
              lambda d: given(d.normal(2, 4, 4), d.uniform(0.1, 0.4, 4).detach()), prelu_along_the_last_axis),
        Fault("is one ulp too large", "Tensor.__mul__", lambda d: given(d.normal(256).detach(), d.normal(256).detach()),
              lambda x, y: away(x * y), dtypes=HALVES, hidden=(FLOAT16,)),
        Fault("averages the gradient over the broadcast axis", "Torch.sub",
              lambda d: given(d.normal(4, 8), d.normal(8)), lambda x, y: x - changed(y.expand(4, 8), lambda g: g / 4),
              seen="backward"),
        Fault("flushes denormals", "Tensor.mul_",
              lambda d: given(d.uniform(1e-2, 2e-2, 64).detach(), d.uniform(1e-3, 2e-3, 64).detach()),
              lambda x, y: flushed(x * y), dtypes=(FLOAT16,)),
        Fault("scales the other operand", "Torch.rsub", lambda d: given(d.normal(64), d.normal(64), alpha=2),
              lambda x, y, alpha: alpha * y - x),
    ),
    "ulp": (
        Fault("accumulates in 16 bits", "Torch.matmul", lambda d: given(d.normal(16, 256), d.normal(256, 16)),
              lambda x, y: accumulated(narrow(x).T[:, :, None] * narrow(y)[:, None, :]).to(x.dtype)),
        Fault("transposes the weight gradient", "Functional.linear",
              lambda d: given(d.normal(12, 16), d.normal(16, 16), d.normal(16)),
              lambda x, weight, bias: F.linear(x, changed(weight, lambda g: g.T), bias), seen="backward"),
        Fault("sums the bias gradient over the first tile", "Functional.linear",
              lambda d: given(d.normal(20, 16), d.normal(8, 16), d.normal(8)),
              lambda *tensors: differentiated(F.linear, lambda g, x, w, b: [g @ w, g.T @ x, g[:16].sum(0)], *tensors),
              seen="backward"),
        Fault("computes in tf32", "Torch.bmm", lambda d: given(d.normal(2, 16, 32), d.normal(2, 32, 16)),
              lambda x, y: truncated(x, 10) @ truncated(y, 10), dtypes=(FLOAT32,)),
        Fault("drops the last tile", "Torch.bmm", lambda d: given(d.normal(2, 8, 70), d.normal(2, 70, 8)),
              lambda x, y: x[:, :, :64] @ y[:, :64]),
        Fault("ignores beta", "Torch.addmm",
              lambda d: given(d.normal(8, 8), d.normal(8, 16), d.normal(16, 8), beta=0.5),
              lambda c, x, y, beta: torch.addmm(c, x, y)),
        Fault("multiplies nan by a beta of 0", "Torch.baddbmm",
              lambda d: given(torch.full((2, 8, 8), float("nan"), dtype=d.dtype), d.normal(2, 8, 16),
                              d.normal(2, 16, 8), beta=0.0),
              lambda c, x, y, beta: beta * c + x @ y),
        Fault("rounds the partial sums", "Torch.mm", lambda d: given(d.normal(16, 256), d.normal(256, 16)),
              lambda x, y: accumulated([a @ b for a, b in zip(x.split(32, 1), y.split(32))]), dtypes=HALVES),
        Fault("is one ulp too large", "Tensor.__matmul__",
              lambda d: given(d.normal(16, 32).detach(), d.normal(32, 16).detach()),
              lambda x, y: away(x @ y), dtypes=HALVES, hidden=(FLOAT16,)),
    ),
    "dual_thousandth": (
        Fault("flips the kernel", "Functional.conv2d",
              lambda d: given(d.whole(1, 2, 6, 6), d.whole(3, 2, 3, 3, most=1), d.whole(3)),
              lambda x, w, b: F.conv2d(x, w.flip(-1, -2), b)),
        Fault("pads on one side", "Functional.conv2d",
              lambda d: given(d.whole(1, 2, 6, 6), d.whole(3, 2, 3, 3, most=1), d.whole(3), 2, 1),
              conv2d_padded_behind),
        Fault("interleaves the groups", "Functional.conv2d",
              lambda d: given(d.whole(1, 4, 6, 6), d.whole(4, 2, 3, 3, most=1), None, 1, 1, 1, 2),
              conv2d_groups_interleaved),
        Fault("computes in bfloat16", "Functional.conv2d",
              lambda d: given(d.normal(1, 4, 8, 8).detach(), d.normal(4, 4, 3, 3).detach()),
              lambda x, w: F.conv2d(x.bfloat16(), w.bfloat16()).to(x.dtype), dtypes=(FLOAT32, FLOAT16)),
        Fault("drops the bias", "Functional.conv1d",
              lambda d: given(d.whole(2, 4, 12), d.whole(4, 4, 3, most=1), d.whole(4)),
              lambda x, w, b: F.conv1d(x, w) + 0 * b[:, None]),
        Fault("swaps the channels of the weight gradient", "Functional.conv1d",
              lambda d: given(d.whole(2, 4, 12), d.whole(4, 4, 3, most=1), d.whole(4)),
              lambda x, w, b: F.conv1d(x, changed(w, lambda g: g.transpose(0, 1)), b), seen="backward"),
    ),
    "binary_consistency": (
        Fault("takes the root of the square", "Torch.abs", lambda d: given(d.denormal(64)), lambda x: (x * x).sqrt(),
              hidden=ALL),
        Fault("computes from sum and difference", "Torch.maximum",
              lambda d: given(d.normal(64), d.normal(64)), lambda x, y: (x + y + (x - y).abs()) / 2,
              hidden=(FLOAT32, FLOAT16)),
        Fault("gives the gradient of ties to the first", "Torch.maximum",
              lambda d: given(d.whole(64), d.whole(64)), maximum_first_takes_all, seen="backward"),
        Fault("turns nan into 0", "Functional.relu", lambda d: given(d.plain(-1, float("nan"), 2)),
              lambda x: torch.where(x > 0, x, 0)),
        Fault("has a gradient of 1 at 0", "Functional.relu", lambda d: given(d.whole(64)), relu_one_at_zero,
              seen="backward"),
        Fault("rounds halves away from zero", "Torch.round", lambda d: given(d.plain(0.5, 1.5, 2.5, -0.5, 1.25)),
              lambda x: (x.abs() + 0.5).floor() * x.sign()),
        Fault("truncates", "Torch.floor", lambda d: given(d.normal(64, scale=4)), torch.trunc),
        Fault("leaves out the diagonal", "Torch.tril", lambda d: given(d.normal(8, 8)), lambda x: x.tril(-1)),
        Fault("fills with the lowest number of float16", "Tensor.masked_fill",
              lambda d: given(d.normal(8, 8), torch.ones(8, 8).triu(1).bool(), float("-inf")),
              lambda x, mask, value: x.masked_fill(mask, max(value, -65504.0))),
        Fault("does not sort", "Torch.topk", lambda d: given(d.normal(8, 32), 5), topk_in_place),
        Fault("is not stable", "Torch.sort", lambda d: given(d.whole(4, 32), stable=True, dim=-1), sorted_unstably),
        Fault("takes the wrong axis", "Torch.gather", lambda d: given(d.normal(8, 8), 1, d.index(8, 8, 8)),
              lambda x, dim, index: x.gather(0, index)),
        Fault("repeats the edge", "Functional.pad", lambda d: given(d.normal(2, 3, 8), [2, 2], mode="reflect"),
              pad_symmetric),
        Fault("pads with zeros", "Functional.max_pool3d",
              lambda d: given(d.uniform(-2, -1, 1, 2, 4, 4, 4), 3, 2, 1), max_pool_of_zeros(F.max_pool3d)),
        Fault("flushes denormals", "Torch.neg", lambda d: given(d.denormal(64)), lambda x: -flushed(x), hidden=ALL),
        Fault("copies through float16", "Torch.transpose", lambda d: given(d.normal(8, 8, scale=1e5), 0, 1),
              lambda x, *dims: x.half().transpose(*dims).to(x.dtype), dtypes=(FLOAT32, BFLOAT16)),
        Fault("takes nan as less", "Torch.less", lambda d: given(d.plain(1, float("nan"), 3), d.plain(2, 2, 2)),
              lambda x, y: ~(x >= y)),
        Fault("takes the last of ties", "Torch.argmin", lambda d: given(d.whole(8, 32), -1), ties_last(torch.argmin)),
        Fault("takes the last of ties", "Torch.argmax", lambda d: given(d.whole(8, 32), -1), ties_last(torch.argmax)),
    ),
}
# fmt: on
