"""The gradients of recorded calls, held against autograd in float64, computed by the test itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from probe_pytorch.precheck.raising import iterate_tensors
from support.runs.prechecked import PASS, live
from torch.nn import functional as F

RTOL = 1e-6
"""Of the gradient's largest element: the reference is float64, and float32 numbers are exact in it."""

Case = tuple[str, Callable[..., Any], list[torch.Tensor]]
"""The record's name, the function, and its tensors, of which those that are real need a gradient."""

generator = torch.Generator().manual_seed(11)


def real(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator)


def index(size: int, *shape: int) -> torch.Tensor:
    return torch.randint(size, shape, generator=generator)


def positive(size: int) -> torch.Tensor:
    a = real(size, size)
    return a @ a.T + size * torch.eye(size)


CASES: list[Case] = [
    ("Torch.matmul", torch.matmul, [real(3, 4, 5), real(5, 2)]),
    ("Torch.baddbmm", lambda a, b, c: torch.baddbmm(a, b, c, beta=0.5), [real(2, 3, 4), real(2, 3, 5), real(2, 5, 4)]),
    ("Torch.einsum", lambda a, b: torch.einsum("bij,bkj->bik", a, b), [real(2, 3, 4), real(2, 5, 4)]),
    ("Torch.cat", lambda a, b: torch.cat([a, b], 1), [real(3, 2), real(3, 4)]),
    ("Torch.stack", lambda a, b, c: torch.stack((a, b, c)), [real(3), real(3), real(3)]),
    ("Torch.where", lambda a, b: torch.where(torch.tensor([True, False, True]), a, b), [real(3), real(3)]),
    ("Torch.gather", lambda a, i: torch.gather(a, 1, i), [real(3, 5), index(5, 3, 4)]),
    ("Torch.index_select", lambda a, i: torch.index_select(a, 0, i), [real(5, 3), index(5, 7)]),
    ("Torch.scatter_add", lambda a, i, b: torch.scatter_add(a, 1, i, b), [real(3, 5), index(5, 3, 4), real(3, 4)]),
    ("Torch.masked_fill", lambda a: torch.masked_fill(a, a > 0, 2.0), [real(4, 5)]),
    ("Torch.cumsum", lambda a: torch.cumsum(a, 0), [real(4, 5)]),
    ("Torch.prod", lambda a: torch.prod(a, 1), [real(4, 5)]),
    ("Torch.logsumexp", lambda a: torch.logsumexp(a, 1), [real(4, 5)]),
    ("Torch.norm", torch.norm, [real(4, 5)]),
    ("Torch.lerp", lambda a, b, w: torch.lerp(a, b, w), [real(4), real(4), real(4)]),
    ("Torch.linalg.inv", torch.linalg.inv, [positive(4)]),
    ("Torch.linalg.solve", torch.linalg.solve, [positive(4), real(4, 2)]),
    ("Torch.linalg.det", torch.linalg.det, [positive(3)]),
    ("Torch.cdist", torch.cdist, [real(4, 3), real(5, 3)]),
    ("Torch.linalg.svd", lambda a: torch.linalg.svd(a, full_matrices=False)[1], [real(4, 3)]),
    ("Torch.sort", lambda a: torch.sort(a, 1)[0], [real(4, 5)]),
    ("Torch.topk", lambda a: torch.topk(a, 2)[0], [real(4, 5)]),
    ("Torch.var_mean", torch.var_mean, [real(40)]),
    ("Torch.split", lambda a: torch.split(a, [2, 3], 1), [real(4, 5)]),
    ("Torch.chunk", lambda a: torch.chunk(a, 2), [real(4, 5)]),
    ("Torch.unbind", torch.unbind, [real(3, 5)]),
    ("Tensor.__mul__", lambda a, b: a * b, [real(4, 5), real(5)]),
    ("Tensor.__truediv__", lambda a, b: a / b, [real(4, 5), real(4, 1).exp()]),
    ("Tensor.__pow__", lambda a: a**3, [real(6)]),
    ("Functional.linear", F.linear, [real(3, 5), real(2, 5), real(2)]),
    ("Functional.bilinear", F.bilinear, [real(3, 4), real(3, 5), real(2, 4, 5)]),
    ("Functional.embedding", lambda i, w: F.embedding(i, w), [index(6, 3, 4), real(6, 2)]),
    ("Functional.layer_norm", lambda a, w, b: F.layer_norm(a, (5,), w, b), [real(4, 5), real(5), real(5)]),
    ("Functional.group_norm", lambda a, w, b: F.group_norm(a, 2, w, b), [real(3, 4, 5), real(4), real(4)]),
    ("Functional.batch_norm", lambda a, w, b: F.batch_norm(a, None, None, w, b, True), [real(9, 3), real(3), real(3)]),
    ("Functional.softmax", lambda a: F.softmax(a, -1), [real(4, 5)]),
    ("Functional.log_softmax", lambda a: F.log_softmax(a, 0), [real(4, 5)]),
    ("Functional.gelu", lambda a: F.gelu(a, approximate="tanh"), [real(20)]),
    ("Functional.silu", F.silu, [real(20)]),
    ("Functional.prelu", F.prelu, [real(4, 3), real(3)]),
    ("Functional.cross_entropy", lambda a, t: F.cross_entropy(a, t, label_smoothing=0.1), [real(6, 4), index(4, 6)]),
    ("Functional.mse_loss", F.mse_loss, [real(6, 4), real(6, 4)]),
    ("Functional.smooth_l1_loss", F.smooth_l1_loss, [3 * real(6, 4), real(6, 4)]),
    ("Functional.conv3d", F.conv3d, [real(1, 2, 3, 4, 4), real(2, 2, 2, 2, 2), real(2)]),
    ("Functional.conv_transpose2d", F.conv_transpose2d, [real(1, 2, 3, 3), real(2, 3, 2, 2)]),
    ("Functional.max_pool2d", lambda a: F.max_pool2d(a, 2), [real(1, 2, 4, 4)]),
    ("Functional.avg_pool2d", lambda a: F.avg_pool2d(a, 2), [real(1, 2, 4, 4)]),
    ("Functional.interpolate", lambda a: F.interpolate(a, scale_factor=2.0, mode="bilinear"), [real(1, 2, 3, 3)]),
    ("Functional.pad", lambda a: F.pad(a, (1, 2), mode="reflect"), [real(2, 3, 5)]),
    ("Functional.scaled_dot_product_attention", F.scaled_dot_product_attention, [real(1, 2, 4, 3) for _ in range(3)]),
]  # fmt: skip
# by keyword: the gradients follow in the order of the call
CASES += [
    (
        "Functional.linear",
        lambda a, w, b: F.linear(input=a, weight=w, bias=b),
        [real(3, 5), real(2, 5), real(2)],
    ),
    ("Functional.linear", lambda a, w, b: F.linear(a, w, bias=b), [real(3, 5), real(2, 5), real(2)]),
    ("Torch.stack", lambda a, b: torch.stack(tensors=[a, b], dim=1), [real(3), real(3)]),
    ("Torch.addmm", lambda a, b, c: torch.addmm(a, mat1=b, mat2=c), [real(3, 4), real(3, 5), real(5, 4)]),
]


def leaves_of(tensors: list[torch.Tensor], dtype: torch.dtype) -> list[torch.Tensor]:
    """Copies of which the real ones need a gradient."""
    copies = [t.to(dtype) if t.is_floating_point() else t for t in tensors]
    return [t.detach().clone().requires_grad_(t.is_floating_point()) for t in copies]


def expected(function: Callable[..., Any], tensors: list[torch.Tensor], gradients: list[torch.Tensor]) -> list[Any]:
    """The gradients in float64, in the order of the tensors; those that need none left out."""
    doubles = leaves_of(tensors, torch.float64)
    outputs = [o for o in iterate_tensors(function(*doubles)) if o.requires_grad]
    torch.autograd.backward(outputs, [g.double() for g in gradients])
    return [t.grad.numpy() for t in doubles if t.grad is not None]


@pytest.mark.parametrize(
    "api, function, tensors", [pytest.param(*case, id=f"{case[0]}-{i}") for i, case in enumerate(CASES)]
)
def test_gradients(tmp_path: Path, api: str, function: Callable[..., Any], tensors: list[torch.Tensor]) -> None:
    """The reference to 1e-6, the device as near as float32 is, and the rows in the order of the arguments."""
    torch.manual_seed(1)
    shapes = [o.shape for o in iterate_tensors(function(*leaves_of(tensors, torch.float32))) if o.requires_grad]
    gradients = [torch.randn(shape) for shape in shapes]

    def program() -> None:
        outputs = [o for o in iterate_tensors(function(*leaves_of(tensors, torch.float32))) if o.requires_grad]
        sum((o * g).sum() for o, g in zip(outputs, gradients)).backward()  # type: ignore[union-attr]

    found = live(tmp_path / "run", program)[f"{api}.0"]
    assert found.result.backward is PASS, found.text
    truth = expected(function, tensors, gradients)
    for side, rtol in (("bench", RTOL), ("device", 1e-4)):
        ours = [array for array in found.arrays(side, "backward") if array is not None]
        assert [array.shape for array in ours] == [array.shape for array in truth]
        for one, other in zip(ours, truth):
            np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol * abs(other).max())


def test_there_are_enough() -> None:
    assert len({api for api, *_ in CASES}) >= 25


def test_gradients_of_made_up_inputs(tmp_path: Path) -> None:
    """From statistics: of the tensors that were made up, with the gradient that was made up."""
    a, b = real(4, 6).requires_grad_(), real(6, 3).requires_grad_()
    found = live(tmp_path / "run", lambda: (torch.matmul(a, b) * real(4, 3)).sum().backward(), "statistics")[
        "Torch.matmul.0"
    ]
    kept = found.outcome.kept
    ((_, gradient),) = kept.gradients
    assert not torch.equal(kept.arguments.positional[0], a)
    truth = expected(torch.matmul, kept.arguments.positional, [gradient])
    for one, other in zip(found.arrays("bench", "backward"), truth, strict=True):
        np.testing.assert_allclose(one, other, rtol=RTOL)
