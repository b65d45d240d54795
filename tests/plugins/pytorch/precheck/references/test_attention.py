"""npu_fusion_attention in float64, held against torch's own attention with masks written element by element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from support.cases import every
from support.references.fused import F64, close, forward
from torch.nn.functional import scaled_dot_product_attention

B, N, S, K, D = 2, 4, 3, 5, 6
"""Batch, heads of the query, its length, that of key and value, the length of a head."""

LAYOUTS = ["BSH", "SBH", "BSND", "BNSD"]

TRIANGLE = torch.ones(2048, 2048).triu(1).bool()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(3)


def laid_out(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor (B, N, S, D) in a layout."""
    names = {"b": 0, "n": 1, "s": 2, "d": 3}
    x = x.permute([names[letter] for letter in layout.lower().replace("h", "nd")])
    return x.flatten(-2) if "H" in layout else x


def qkv(heads: int = N, queries: int = S, keys: int = K, value_length: int = D) -> list[torch.Tensor]:
    shapes = [(B, N, queries, D), (B, heads, keys, D), (B, heads, keys, value_length)]
    return [torch.randn(shape, dtype=F64) for shape in shapes]


def attend(tensors: list[torch.Tensor], layout: str = "BNSD", **keywords: Any) -> Any:
    return forward("npu_fusion_attention", *(laid_out(t, layout) for t in tensors), N, layout, **keywords)


def expected(
    tensors: list[torch.Tensor], hidden: Any = None, pse: torch.Tensor | float = 0.0, scale: float = 1.0
) -> Any:
    """Torch's attention, with −inf where ``hidden`` and the position code in the scale."""
    bias = torch.zeros(tensors[0].shape[2], tensors[1].shape[2], dtype=F64) + pse * scale
    if hidden is not None:
        bias = bias.masked_fill(torch.as_tensor(hidden), -torch.inf)
    query, *shared = tensors
    repeated = [t.repeat_interleave(query.shape[1] // t.shape[1], dim=1) for t in shared]
    return scaled_dot_product_attention(query, *repeated, attn_mask=bias, scale=scale)


# -- layouts and heads ---------------------------------------------------------------------


@every("layout", LAYOUTS)
@every("heads", [4, 2, 1])
def test_layouts_and_shared_heads(layout: str, heads: int) -> None:
    """Forward and backward; key and value have heads of different lengths."""
    tensors = [t.requires_grad_() for t in qkv(heads, value_length=4)]
    ours = attend(tensors, layout, scale=0.4)[0]
    theirs = laid_out(expected(tensors, scale=0.4), layout)
    close(ours, theirs.detach())
    grad = torch.randn(ours.shape, dtype=F64)
    for one, other in zip(torch.autograd.grad(ours, tensors, grad), torch.autograd.grad(theirs, tensors, grad)):
        close(one, other)


def test_backward_is_the_guides() -> None:
    """Dv = pᵀ dx, ds = p (dp − Σ dp p) scale, dq = ds k, dk = dsᵀ q, summed over the heads that share."""
    tensors, pse = qkv(heads=2), torch.randn(1, N, S, K, dtype=F64)
    leaves = [t.clone().requires_grad_() for t in tensors]
    dx = torch.randn(B, N, S, D, dtype=F64)
    attend(leaves, pse=pse, scale=0.4)[0].backward(dx)
    q, k, v = (t.numpy() for t in tensors)
    k, v, g = np.repeat(k, 2, 1), np.repeat(v, 2, 1), dx.numpy()
    p = np.exp((q @ k.swapaxes(-1, -2) + pse.numpy()) * 0.4)
    p /= p.sum(-1, keepdims=True)
    dp = g @ v.swapaxes(-1, -2)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * 0.4
    shared = [t.reshape(B, 2, 2, K, D).sum(2) for t in (ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ g)]
    for leaf, gradient in zip(leaves, (ds @ k, *shared)):
        close(leaf.grad, gradient)


def test_maximum_and_sum() -> None:
    """Repeated eight times, of the scores after scale and mask."""
    tensors, mask = qkv(), torch.rand(S, K) < 0.3
    _, largest, total = attend(tensors, atten_mask=mask, scale=0.4)
    q, k, _ = (t.numpy() for t in tensors)
    scores = q @ k.swapaxes(-1, -2) * 0.4 - 40000.0 * mask.numpy()
    most = scores.max(-1, keepdims=True)
    close(largest, np.repeat(most, 8, -1))
    close(total, np.repeat(np.exp(scores - most).sum(-1, keepdims=True), 8, -1))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_everything_is_float64(dtype: torch.dtype) -> None:
    tensors = [t.to(dtype).requires_grad_() for t in qkv()]
    out, largest, total = attend(tensors)
    assert out.dtype == largest.dtype == total.dtype == F64
    close(out, expected([t.double() for t in tensors]).detach())
    out.sum().backward()
    assert all(t.grad is not None and t.grad.dtype == dtype for t in tensors)


def test_defaults() -> None:
    """Scale is 1, and nothing is dropped whatever keep_prob says."""
    tensors = qkv()
    close(attend(tensors)[0], expected(tensors))
    close(attend(tensors, keep_prob=0.1)[0], expected(tensors))


@pytest.mark.parametrize("shape", [(B, N, S, K), (1, N, S, K), (B, N, 1, K)])
def test_the_position_code_is_inside_the_scale(shape: tuple[int, ...]) -> None:
    tensors, pse = qkv(), torch.randn(shape, dtype=F64)
    close(attend(tensors, pse=pse, scale=0.4)[0], expected(tensors, pse=pse, scale=0.4))


# -- masks ---------------------------------------------------------------------------------


def band(queries: int, keys: int, before: int, after: int, *, from_the_end: bool) -> Any:
    """True where a key is out of sight of a query, one by one."""
    start = keys - queries if from_the_end else 0
    return [[not i + start - before <= j <= i + start + after for j in range(keys)] for i in range(queries)]


@every("shape", [(B, N, S, K), (B, 1, S, K), (1, 1, S, K), (S, K)])
@every("mode", range(5))
@every("dtype", [torch.bool, torch.uint8])
def test_masks_given_in_full(shape: tuple[int, ...], mode: int, dtype: torch.dtype) -> None:
    tensors, mask = qkv(), torch.rand(shape) < 0.5
    mask[..., 0] = False
    ours = attend(tensors, atten_mask=mask.to(dtype), sparse_mode=mode, pre_tockens=1, next_tockens=0)[0]
    close(ours, expected(tensors, mask))


@every("queries, keys", [(4, 4), (3, 5), (1, 6)])
@every("before, after", [(1, 1), (2, 0), (2, -1), (-1, 2), (2147483647, 0)])
@every("mask", [TRIANGLE, TRIANGLE[None, None]], ids=["SS", "11SS"])
def test_compressed_masks(queries: int, keys: int, before: int, after: int, mask: torch.Tensor) -> None:
    """2: causal from the first key, 3: causal to the last key, 4: a band to the last key."""
    tensors = qkv(queries=queries, keys=keys)
    far = 2147483647
    given = {"atten_mask": mask, "pre_tockens": before, "next_tockens": after}
    masks = {
        2: band(queries, keys, far, 0, from_the_end=False),
        3: band(queries, keys, far, 0, from_the_end=True),
        4: band(queries, keys, before, after, from_the_end=True),
    }
    for mode, hidden in masks.items():
        rows = ~torch.tensor(hidden).all(-1)  # what becomes of rows that see nothing, see below
        ours = attend(tensors, sparse_mode=mode, **given)[0]
        close(ours[:, :, rows], expected(tensors, hidden)[:, :, rows])


@pytest.mark.parametrize("mode", range(5))
def test_without_a_mask_nothing_is_masked(mode: int) -> None:
    tensors = qkv()
    close(attend(tensors, sparse_mode=mode, pre_tockens=0, next_tockens=0)[0], expected(tensors))


def test_rows_that_are_masked_as_a_whole() -> None:
    """They are what they are without a mask, in value and in gradient; no nan comes of them."""
    tensors = [t.requires_grad_() for t in qkv()]
    mask = torch.zeros(S, K, dtype=torch.bool)
    mask[1] = True
    ours = attend(tensors, atten_mask=mask)[0]
    np.testing.assert_allclose(ours.detach(), expected(tensors).detach(), rtol=1e-9)
    grads = torch.autograd.grad(ours.square().sum(), tensors)
    for one, other in zip(grads, torch.autograd.grad(expected(tensors).square().sum(), tensors)):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-9)


def test_causal_with_more_queries_than_keys() -> None:
    """In mode 3 the first queries see nothing."""
    tensors = qkv(queries=5, keys=3)
    ours = attend(tensors, atten_mask=TRIANGLE, sparse_mode=3)[0]
    close(ours[:, :, 2:], expected(tensors, band(5, 3, 9, 0, from_the_end=True))[:, :, 2:])
    assert ours.isfinite().all()


# -- sequences of different lengths --------------------------------------------------------

ENDS = [
    ([3, 5, 9], [4, 5, 10]),
    ([3, 3, 9], [4, 6, 10]),  # the second has no query
    ([3, 5, 9], [4, 4, 10]),  # the second has no key
    ([3, 5, 0, 0], [4, 7, 0, 0]),  # the last two take no part
    ([9], [10]),
]


@every("query_ends, key_ends", ENDS)
@every("heads", [4, 2])
@every("masked", ["", "compressed", "full"])
def test_sequences_behind_each_other(query_ends: Any, key_ends: Any, heads: int, masked: str) -> None:
    """TND: each sequence by itself, zeros elsewhere; forward and backward."""
    q, k, v = (torch.randn(t, n, D, dtype=F64).requires_grad_() for t, n in ((9, N), (10, heads), (10, heads)))
    longest = torch.rand(9, 10) < 0.5
    longest[:, 0] = False
    masks: dict[str, Any] = {
        "": {},
        "compressed": {"atten_mask": TRIANGLE, "sparse_mode": 2},
        "full": {"atten_mask": longest, "sparse_mode": 1},
    }
    ends = {"actual_seq_qlen": query_ends, "actual_seq_kvlen": key_ends}
    out, largest, total = forward("npu_fusion_attention", q, k, v, N, "TND", scale=0.4, **ends, **masks[masked])
    assert largest.shape == total.shape == (9, N, 8)
    theirs = torch.zeros(9, N, D, dtype=F64)
    starts = [0, *query_ends], [0, *key_ends]
    for a, b, c, d in zip(starts[0], query_ends, starts[1], key_ends):
        if b > a and d > c:
            part = [t.unsqueeze(0).transpose(1, 2) for t in (q[a:b], k[c:d], v[c:d])]
            hidden: dict[str, Any] = {
                "": None,
                "compressed": band(b - a, d - c, 99, 0, from_the_end=False),
                "full": longest[: b - a, : d - c],
            }
            theirs[a:b] = expected(part, hidden[masked], scale=0.4)[0].transpose(0, 1)
    close(out, theirs.detach())
    grad = torch.randn(9, N, D, dtype=F64)
    for one, other in zip(*(torch.autograd.grad(result, (q, k, v), grad) for result in (out, theirs))):
        close(one, other)


# -- arguments -----------------------------------------------------------------------------

Q, KEY = torch.randn(B, S, N * D), torch.randn(B, K, N * D)
T = torch.randn(9, N, D)

BAD: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((Q, KEY, KEY, N, "HSB"), {}, '"HSB"'),
    ((Q, KEY, KEY, N, "BSND"), {}, "4 axes"),
    ((Q, KEY, KEY, 5, "BSH"), {}, "head_num 5"),
    ((Q, KEY, KEY, 0, "BSH"), {}, "head_num is 0"),
    ((Q, KEY[..., :-1], KEY, N, "BSH"), {}, "H of key"),
    ((Q, KEY, KEY[..., :-1], N, "BSH"), {}, "H of value"),
    ((Q, KEY[..., : 3 * D], KEY[..., : 3 * D], N, "BSH"), {}, "cannot share 3"),
    ((Q, KEY, KEY[:, :-1], N, "BSH"), {}, "key and value differ"),
    ((Q, KEY[:1], KEY[:1], N, "BSH"), {}, "differ in their batch"),
    ((T, T[..., :-1], T, N, "TND"), {}, "query and key differ in length"),
    ((T, T, T, 2, "TND"), {}, "4 heads, but head_num is 2"),
    ((T, T, T, N, "TND"), {"actual_seq_qlen": [9]}, "actual_seq_kvlen is not given"),
    ((T, T, T, N, "TND"), {"actual_seq_qlen": [9], "actual_seq_kvlen": [4, 9]}, "has 1 elements"),
    ((T, T, T, N, "TND"), {"actual_seq_qlen": [5, 4], "actual_seq_kvlen": [4, 9]}, "must ascend"),
    ((T, T, T, N, "TND"), {"actual_seq_qlen": [5, 9], "actual_seq_kvlen": [4, 10]}, "no more than 9"),
    ((T, T, T, N, "TND"), {"pse": T, "actual_seq_qlen": [9], "actual_seq_kvlen": [9]}, "pse"),
    ((Q, KEY, KEY, N, "BSH"), {"sparse_mode": 5}, "sparse_mode is 5"),
    ((Q, KEY, KEY, N, "BSH"), {"sparse_mode": -1}, "sparse_mode is -1"),
    ((Q, KEY, KEY, N, "BSH"), {"prefix": [1, 2]}, "prefix"),
    ((Q, KEY, KEY, N, "BSH"), {"atten_mask": torch.ones(S, K + 1)}, "atten_mask has shape"),
    ((Q, KEY, KEY, N, "BSH"), {"atten_mask": TRIANGLE}, "atten_mask has shape"),
    ((Q, KEY, KEY, N, "BSH"), {"pse": torch.ones(1, N, S, K + 1)}, "pse has shape"),
    ((Q, KEY[:, :0], KEY[:, :0], N, "BSH"), {}, "cannot be computed"),
]


@every("arguments, keywords, problem", BAD)
def test_arguments_that_do_not_fit(arguments: Any, keywords: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as caught:
        forward("npu_fusion_attention", *arguments, **keywords)
    assert "\n" not in str(caught.value)
