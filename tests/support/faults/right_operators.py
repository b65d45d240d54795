"""Other implementations of operators that are right, so that no standard may fault them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from support.faults.planted_errors import HIGHER, accumulated, per_channel, raised, standardised


def once(function: Callable[..., Any], change: Callable[[Any], Any] = raised) -> Callable[..., Any]:
    """The function in the dtype of the reference, rounded once at its end."""

    def right(*positional: Any, **keywords: Any) -> Any:
        output = function(*map(change, positional), **{name: change(one) for name, one in keywords.items()})
        tensors = (one for one in (*positional, *keywords.values()) if isinstance(one, Tensor))
        return output.to(next(one.dtype for one in tensors if one.is_floating_point()))

    return right


def wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function in float32, rounded once at its end."""
    return once(function, lambda one: one.float() if isinstance(one, Tensor) and one.dtype in HIGHER else one)


def blocked(x: Tensor, y: Tensor) -> Any:
    """The matrix product, summed in blocks of 5."""
    return accumulated([a @ b for a, b in zip(x.split(5, -1), y.split(5, -2))])


def batch_norm_composed(
    x: Tensor, mean: Any, var: Any, weight: Tensor, bias: Tensor, training: bool, momentum: float, eps: float
) -> Tensor:
    if mean is not None:
        seen = raised(x.detach())
        for kept, new in ((mean, seen.mean((0, 2, 3))), (var, seen.var((0, 2, 3)))):
            kept.copy_((1 - momentum) * raised(kept) + momentum * new)
    return per_channel(standardised(x, (0, 2, 3), eps), raised(weight), raised(bias)).to(x.dtype)


def attention_composed(q: Tensor, k: Tensor, v: Tensor, is_causal: bool = False) -> Tensor:
    score: Tensor = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
    if is_causal:
        score = score.masked_fill(torch.ones_like(score).triu(1).bool(), float("-inf"))
    return torch.matmul(score.softmax(-1), v)


def group_norm_composed(x: Tensor, groups: int, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    standard = standardised(x.reshape(len(x), groups, -1), -1, eps).reshape(x.shape)
    return per_channel(standard, weight, bias)


def cumsum_with_carry(x: Tensor, dim: int) -> Tensor:
    carry = torch.zeros_like(x[:, :1])
    found = []
    for block in x.split(50, dim):
        found.append(block.cumsum(dim) + carry)
        carry = found[-1][:, -1:]
    return torch.cat(found, dim)


def conv2d_unfolded(
    x: Tensor,
    weight: Tensor,
    bias: Any = None,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    side = (x.shape[-1] + 2 * padding - weight.shape[-1]) // stride + 1
    columns = F.unfold(x, weight.shape[2:], padding=padding, stride=stride).reshape(len(x), groups, -1, side * side)
    found = weight.reshape(groups, len(weight) // groups, -1) @ columns
    found = found.reshape(len(x), -1, side, side)
    return found if bias is None else found + bias[:, None, None]


def conv1d_unfolded(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.einsum("ncwk,ock->now", x.unfold(-1, weight.shape[-1], 1), weight) + bias[:, None]


RIGHT: dict[str, Callable[..., Any]] = {
    "Functional.layer_norm": once(lambda x, shape, weight, bias, eps: standardised(x, -1, eps) * weight + bias),
    "Functional.softmax": once(lambda x, dim: F.log_softmax(x, dim).exp()),
    "Functional.log_softmax": once(lambda x, dim: x - x.logsumexp(dim, keepdim=True)),
    "Functional.gelu": wide(lambda x: x * 0.5 * (1 + (x * 0.5**0.5).erf())),
    "Functional.silu": once(lambda x: x / (1 + (-x).exp())),
    "Torch.sigmoid": once(lambda x: 1 / (1 + (-x).exp())),
    "Functional.batch_norm": batch_norm_composed,
    "Torch.sum": wide(lambda x, dim: x.reshape(len(x), 32, -1).sum(-1).sum(-1)),
    "Torch.mean": once(lambda x, dim: x.mul(1 / x.shape[dim]).sum(dim)),
    "Torch.var": once(lambda x, dim: (x - x.mean(dim, keepdim=True)).square().sum(dim) / (x.shape[dim] - 1)),
    "Torch.cumsum": once(cumsum_with_carry),
    "Functional.cross_entropy": once(lambda x, target: F.nll_loss(x.log_softmax(-1), target)),
    "Functional.scaled_dot_product_attention": once(attention_composed),
    "Torch.pow": wide(lambda x, power: x * x * x),
    "Torch.log": once(lambda x: x.log2() * 0.6931471805599453),
    "Functional.group_norm": once(group_norm_composed),
    "Functional.softplus": once(lambda x: x.logaddexp(torch.zeros_like(x))),
    "Tensor.scatter_add": once(lambda x, dim, index, source: x + (F.one_hot(index, 6) * source[..., None]).sum(dim)),
    "Functional.kl_div": wide(lambda x, target, reduction: (target * target.log() - target * x).sum() / len(x)),
    "Torch.norm": wide(lambda x, p, dim: x.square().sum(dim).sqrt()),
    "Torch.add": wide(lambda x, y, alpha: y * alpha + x),
    "Torch.div": wide(lambda x, y: x * y.reciprocal()),
    "Torch.rsqrt": wide(lambda x: x.sqrt().reciprocal()),
    "Torch.square": wide(lambda x: x * x),
    "Functional.leaky_relu": wide(lambda x, negative_slope: x.relu() - negative_slope * (-x).relu()),
    "Functional.prelu": wide(lambda x, weight: x.relu() - weight[:, None] * (-x).relu()),
    "Torch.sub": wide(lambda x, y: x + -y),
    "Torch.matmul": wide(blocked),
    "Torch.mm": wide(blocked),
    "Torch.bmm": wide(blocked),
    "Tensor.__matmul__": wide(blocked),
    "Functional.linear": wide(lambda x, weight, bias: blocked(x, weight.T) + bias),
    "Torch.addmm": wide(lambda c, x, y, beta: blocked(x, y) + beta * c),
    "Torch.baddbmm": wide(lambda c, x, y, beta: blocked(x, y)),
    "Functional.conv2d": wide(conv2d_unfolded),
    "Functional.conv1d": wide(conv1d_unfolded),
    "Torch.abs": lambda x: torch.where(x < 0, -x, x),
    "Functional.relu": lambda x: x * (x > 0),
    "Torch.round": lambda x: torch.where(x % 1 == 0.5, 2 * (x / 2).round(), (x + 0.5).floor()),
    "Torch.tril": lambda x: x * torch.ones_like(x).tril(),
    "Tensor.masked_fill": lambda x, mask, value: torch.where(mask, value, x),
    "Torch.topk": lambda x, k: tuple(part[..., :k] for part in x.sort(dim=-1, descending=True)),
    "Functional.pad": lambda x, pad, **_: torch.cat([x[..., 1:3].flip(-1), x, x[..., -3:-1].flip(-1)], -1),
    "Torch.neg": lambda x: 0 - x,
    "Torch.less": lambda x, y: y > x,
}
"""By API. For most of those that the benchmark ratio judges, float32 is computed in float64 too: in float32 another
formula or order has errors of the same size and not the same, and whose are larger is luck, which the guide's rule
calls a warning above 1, and for few elements, or sums near 0, an error above 2."""
