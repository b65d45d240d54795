"""The definition of fused attention, in float64 (docs/standards.md#fused-operators)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from probe_pytorch.precheck.references.attention_layouts import (
    ALL_TOKENS,
    TND,
    AttentionMask,
    Heads,
    list_sequences,
    merge_heads,
    split_heads,
)
from probe_pytorch.precheck.references.checks import check, check_broadcasts

MASKED = -40000.0
"""The number added to masked scores after they are scaled."""

REPEATS = 8
"""The length of the last axis, along which the operator repeats the maximum and the sum of a row."""


Attention = tuple[Tensor, Tensor, Tensor]
"""The output, and the maximum and the sum of each row of the softmax, which the backward uses."""


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = ALL_TOKENS,
    next_tockens: int = ALL_TOKENS,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
    softmax_layout: str = "",
    sink: Tensor | None = None,
) -> Attention:
    """Return softmax(scale·(q kᵀ + pse) + mask)·v, with the maximum and the sum of each row of the softmax.

    There is no dropout: ``keep_prob`` is treated as 1. If key and value have fewer heads than ``head_num``,
    the number of the query's heads, groups of query heads share them. −40000 is added to masked scores, so
    that a row that is masked completely has the same result as without a mask. The default of ``scale`` is 1,
    as in the operator's documentation (msprobe 8.3 uses 1/√d). For masks see ``attention_masks.AttentionMask``.

    Returns:
        Three float64 tensors: the output in the layout of the query, and the maximum and the sum, of shape
        (B, N, S, 8) or, for the layout TND, (T, N, 8), without gradients. The operator's further outputs
        (reserved, seed, offset, length of the dropout mask) are left out.

    Raises:
        ValueError: The layout or ``sparse_mode`` is unknown, shapes do not fit, or an argument is given that
            this definition does not support (``padding_mask``, ``prefix``, ``sink``, ``pse`` for TND).
    """
    for name, argument in (("padding_mask", padding_mask), ("prefix", prefix), ("sink", sink)):
        check(argument is None, f"{name} is given, for which there is no definition.")
    masking = AttentionMask(atten_mask, sparse_mode, pre_tockens, next_tockens, is_longest=input_layout == TND)
    heads = split_heads(query.double(), key.double(), value.double(), head_num, input_layout)
    if input_layout == TND:
        check(pse is None, "pse is given, for which there is no definition in the layout TND.")
        return _attend_sequences(heads, list_sequences(heads, actual_seq_qlen, actual_seq_kvlen), masking, scale)
    out, largest, total = _attend(heads, pse, masking, scale)
    return merge_heads(out, input_layout), largest, total


def _attend(heads: Heads, pse: Tensor | None, masking: AttentionMask, scale: float) -> Attention:
    """Return the attention of heads in the layout (B, N, S, D)."""
    query = heads.query
    groups = query.shape[1] // heads.key.shape[1]
    key, value = (tensor.repeat_interleave(groups, 1) for tensor in (heads.key, heads.value))
    scores = query @ key.transpose(-1, -2)
    if pse is not None:
        check_broadcasts(pse, scores.shape, "pse")
        scores = scores + pse
    scores = scores * scale
    mask = masking.make_mask(scores)
    if mask is not None:
        check_broadcasts(mask, scores.shape, "atten_mask")
        scores = scores + mask.to(scores) * MASKED
    out = torch.softmax(scores, -1) @ value
    with torch.no_grad():
        largest = scores.amax(-1, keepdim=True)
        total = (scores - largest).exp().sum(-1, keepdim=True)
    return out, largest.repeat(1, 1, 1, REPEATS), total.repeat(1, 1, 1, REPEATS)


def _attend_sequences(
    heads: Heads, parts: Sequence[tuple[slice, slice]], masking: AttentionMask, scale: float
) -> Attention:
    """Return the attention of each sequence in the layout (T, N, D), with zeros outside of sequences."""
    results = []
    for queries, keys in parts:
        part = Heads(heads.query[queries], heads.key[keys], heads.value[keys])
        if part.query.shape[0] and part.key.shape[0]:
            batch = Heads(*(tensor.transpose(0, 1).unsqueeze(0) for tensor in part))
            result = _attend(batch, None, masking, scale)
            results.append([tensor.squeeze(0).transpose(0, 1) for tensor in result])
        else:
            results.append(_create_zeros(heads, part.query.shape[0]))
    results.append(_create_zeros(heads, heads.query.shape[0] - (parts[-1][0].stop if parts else 0)))
    out, largest, total = (torch.cat(tensors) for tensors in zip(*results))
    return out, largest, total


def _create_zeros(heads: Heads, tokens: int) -> list[Tensor]:
    count, length = heads.query.shape[1], heads.value.shape[-1]
    return [heads.query.new_zeros(tokens, count, width) for width in (length, REPEATS, REPEATS)]
