"""Calibration of what rounding explains of one operator: ``python calibrate.py [CLASS …]``.

Each operator is computed from the same inputs in several right ways: with the summands in another order, in
blocks that are added, in another memory layout, by another kernel, on another number of threads; and in
float64, rounded once. The *floor* is the largest distance of any two of these, as a comparison would measure
it: the root mean square of the difference divided by that of the reference, in eps of the dtype; the maximum
over seeds, inputs around zero and positive inputs. Results of float64 have no reference above them, so only
the others are held against each other.

Writes the floors as YAML to the standard output; ``plugins/diagnosis/probe_diagnosis/timeline/floors.yaml``
is what it wrote, with the lines above it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator
from itertools import combinations

import torch
from torch import Tensor
from torch.nn import functional as F

SEEDS = 3
LENGTHS = tuple(2**power for power in range(4, 17, 2))
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
ROWS = 32
"""Number of results of each operator, or of rows of results."""

Results = Iterator[Tensor]
Make = Callable[[Callable[..., Tensor], int], Results]
"""Function that yields the results of all ways; the first is the reference if the dtype is float64."""


def elementwise(draw: Callable[..., Tensor], n: int) -> Results:
    a, b, c = draw(ROWS, 128), draw(ROWS, 128), draw(ROWS, 128)
    yield torch.addcmul(c, a, b)
    yield torch.addcmul(c.T, a.T, b.T).T
    yield a * b + c


def transcendental(draw: Callable[..., Tensor], n: int) -> Results:
    x = draw(ROWS, 128)
    for part in (lambda x: x, lambda x: x.T.contiguous().T):
        yield torch.cat([f(part(x)) for f in (torch.exp, torch.tanh, torch.erf, F.gelu, F.silu, torch.sin)])
    yield torch.cat([f(one) for f in (torch.exp, torch.tanh, torch.erf, F.gelu, F.silu, torch.sin)
                     for one in x.reshape(-1, 1)]).reshape(6, ROWS, 128).reshape(-1, 128)  # fmt: skip


def reduction(draw: Callable[..., Tensor], n: int) -> Results:
    x, order, root = draw(ROWS, n), torch.randperm(n), n**0.5
    for way in (x, x[:, order], x.T.contiguous().T):
        yield torch.stack([way.sum(1) / root, way.mean(1) * root, way.norm(dim=1) / root])
    parts = x.view(ROWS, 4, -1)
    sums, means = parts.sum(2).sum(1), parts.mean(2).mean(1)
    yield torch.stack([sums / root, means * root, parts.norm(dim=2).norm(dim=1) / root])


def normalization(draw: Callable[..., Tensor], n: int) -> Results:
    x, weight, order = draw(ROWS, n), draw(n), torch.randperm(n)
    back = torch.argsort(order)
    yield F.layer_norm(x, (n,), weight)
    yield F.layer_norm(x[:, order], (n,), weight[order])[:, back]
    mean = x.mean(1, keepdim=True)
    yield (x - mean) * torch.rsqrt(x.var(1, keepdim=True, correction=0) + 1e-5) * weight


def normalization_backward(draw: Callable[..., Tensor], n: int) -> Results:
    """Gradients of the weight: sums over n rows."""
    x, given, order = draw(n, ROWS), draw(n, ROWS), torch.randperm(n)
    for rows in (slice(None), order):
        weight = torch.ones(ROWS, dtype=x.dtype, requires_grad=True)
        F.layer_norm(x[rows], (ROWS,), weight).backward(given[rows])
        assert weight.grad is not None
        yield weight.grad


def softmax(draw: Callable[..., Tensor], n: int) -> Results:
    x, order = draw(ROWS, n), torch.randperm(n)
    back = torch.argsort(order)
    yield F.softmax(x, 1)
    yield F.softmax(x[:, order], 1)[:, back]
    yield F.softmax(x.T.contiguous(), 0).T
    powers = torch.exp(x - x.amax(1, keepdim=True))
    yield powers / powers.sum(1, keepdim=True)


def matmul(draw: Callable[..., Tensor], n: int) -> Results:
    a, b, order = draw(ROWS, n), draw(n, ROWS), torch.randperm(n)
    yield a @ b
    yield a[:, order] @ b[order]
    yield (b.T.contiguous() @ a.T.contiguous()).T
    half = n // 2
    yield torch.addmm(a[:, :half] @ b[:half], a[:, half:], b[half:])
    torch.set_num_threads(2)
    yield a @ b
    torch.set_num_threads(1)


def convolution(draw: Callable[..., Tensor], n: int) -> Results:
    channels = max(1, n // 4)
    x, weight, order = draw(1, channels, 9, 9), draw(4, channels, 2, 2), torch.randperm(channels)
    yield F.conv2d(x, weight)
    yield F.conv2d(x[:, order], weight[:, order])
    yield F.conv2d(x.to(memory_format=torch.channels_last), weight.to(memory_format=torch.channels_last))
    yield (F.unfold(x, 2)[0].T @ weight.view(4, -1).T).T.reshape(1, 4, 8, 8)


def attention(draw: Callable[..., Tensor], n: int) -> Results:
    q, k, v, order = draw(1, 1, ROWS, 16), draw(1, 1, n, 16), draw(1, 1, n, 16), torch.randperm(n)
    yield F.scaled_dot_product_attention(q, k, v)
    yield F.scaled_dot_product_attention(q, k[:, :, order], v[:, :, order])
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        yield F.scaled_dot_product_attention(q, k, v)
    yield F.softmax(q @ k.transpose(-2, -1) / 4, -1) @ v


def loss(draw: Callable[..., Tensor], n: int) -> Results:
    x, y, order = draw(n, ROWS), draw(n, ROWS), torch.randperm(n)
    wanted = torch.arange(n) % ROWS
    for rows in (slice(None), order):
        yield torch.stack([F.cross_entropy(x[rows], wanted[rows]), F.mse_loss(x[rows], y[rows])])
    parts = [torch.stack([F.cross_entropy(x[i::2], wanted[i::2]), F.mse_loss(x[i::2], y[i::2])]) for i in (0, 1)]
    yield (parts[0] + parts[1]) / 2


def scatter(draw: Callable[..., Tensor], n: int) -> Results:
    x, order = draw(n, ROWS), torch.randperm(n)
    slot = torch.zeros(n, dtype=torch.long)
    for rows in (slice(None), order):
        yield torch.zeros(1, ROWS, dtype=x.dtype).index_add(0, slot, x[rows])
        yield torch.zeros(1, ROWS, dtype=x.dtype).scatter_add(0, slot[:, None].expand(n, ROWS), x[rows])


def embedding_backward(draw: Callable[..., Tensor], n: int) -> Results:
    """Gradient of a row that n tokens share."""
    given, order = draw(n, ROWS), torch.randperm(n)
    for rows in (slice(None), order):
        table = torch.zeros(2, ROWS, dtype=given.dtype, requires_grad=True)
        F.embedding(torch.ones(n, dtype=torch.long), table).backward(given[rows])
        assert table.grad is not None
        yield table.grad[1:]


def scan(draw: Callable[..., Tensor], n: int) -> Results:
    x = draw(ROWS, n)
    yield x.cumsum(1)
    yield x.T.contiguous().cumsum(0).T
    half = n // 2
    left = x[:, :half].cumsum(1)
    yield torch.cat([left, left[:, -1:] + x[:, half:].cumsum(1)], 1)


def optimizer(draw: Callable[..., Tensor], n: int) -> Results:
    value, gradient = draw(ROWS, 128), draw(ROWS, 128)
    for options in ({"foreach": False}, {"foreach": True}, {"fused": True}):
        parameter = torch.nn.Parameter(value.clone())
        steps = torch.optim.AdamW([parameter], lr=1e-3, eps=1e-3, **options)  # seen by float16
        for _ in range(2):
            parameter.grad = gradient.clone()
            steps.step()
        yield parameter.detach()


CLASSES: dict[str, tuple[Make, tuple[int, ...]]] = {
    "elementwise": (elementwise, (1,)),
    "transcendental": (transcendental, (1,)),
    "optimizer": (optimizer, (1,)),
    "reduction": (reduction, LENGTHS),
    "normalization": (normalization, LENGTHS),
    "normalization_backward": (normalization_backward, LENGTHS),
    "softmax": (softmax, LENGTHS),
    "matmul": (matmul, LENGTHS),
    "convolution": (convolution, LENGTHS),
    "attention": (attention, LENGTHS),
    "loss": (loss, LENGTHS),
    "scatter": (scatter, LENGTHS),
    "embedding_backward": (embedding_backward, LENGTHS),
    "scan": (scan, LENGTHS),
}
"""Classes of operators, each with the lengths of its sums."""


def measure(make: Make, dtype: torch.dtype, length: int) -> float:
    """Return the floor of a class of operators, in eps of the dtype."""
    largest = 0.0
    for seed in range(SEEDS):
        for positive in (False, True):
            torch.manual_seed(seed)
            order = torch.get_rng_state()

            def draw(*shape: int, kind: torch.dtype = dtype, positive: bool = positive) -> Tensor:
                x = torch.randn(shape, dtype=torch.float64)
                return (x.abs() if positive else x).to(dtype).to(kind)

            found = [one.detach().double() for one in make(draw, length) if one.isfinite().all()]  # no overflow
            torch.set_rng_state(order)
            exact = next(make(lambda *shape: draw(*shape, kind=torch.float64), length)).detach()
            if dtype is not torch.float64:
                found.append(exact.to(dtype).double())
            scale = float(exact.square().mean().sqrt())
            for one, other in combinations(found, 2):
                largest = max(largest, float((one - other).square().mean().sqrt()) / scale)
    return largest / torch.finfo(dtype).eps


def _text(value: float) -> str:
    """Return a number that YAML reads as one: 1.0e-05, not 1e-05."""
    text = f"{value:.2g}"
    return text if "." in text else text.replace("e", ".0e")


def main() -> None:
    """Measure the classes that are named, or all, and print their floors."""
    torch.set_num_threads(1)
    print(f"source: benchmarks/calibrate.py, torch {torch.__version__}, {platform.machine()}, {SEEDS} seeds")
    print(f"lengths: {list(LENGTHS)}")
    print("floors:")
    for name in sys.argv[1:] or CLASSES:
        make, lengths = CLASSES[name]
        print(f"  {name}:")
        for dtype in DTYPES:
            values = [_text(measure(make, dtype, length)) for length in lengths]
            print(f"    {str(dtype).removeprefix('torch.')}: [{', '.join(values)}]", flush=True)


if __name__ == "__main__":
    main()
