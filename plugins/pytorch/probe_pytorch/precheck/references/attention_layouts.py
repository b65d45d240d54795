"""Layouts of query, key and value in fused attention (docs/standards.md#fused-operators).

B is the batch, S the length of a sequence, N the number of heads, D the length of a head, H is N·D, and T
counts the tokens of all sequences, one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check

TND = "TND"

_TO_BNSD = {"BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3), "BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3)}
"""The permutation of each layout's axes, with H split into N and D, that gives BNSD."""


class Heads(NamedTuple):
    """Query, key and value in the layout (B, N, S, D) or (T, N, D)."""

    query: Tensor
    key: Tensor
    value: Tensor


def split_heads(query: Tensor, key: Tensor, value: Tensor, head_num: int, layout: str) -> Heads:
    """Return query, key and value with an axis of heads.

    Args:
        query: The query, in the given layout.
        key: The key, in the given layout.
        value: The value, in the given layout.
        head_num: Number of heads of the query.
        layout: BSH, SBH, BSND, BNSD or TND.

    Returns:
        The three in the layout (T, N, D) for TND and (B, N, S, D) for all others.

    Raises:
        ValueError: The layout is unknown, or the shapes do not fit it, ``head_num`` or each other.
    """
    check(
        layout == TND or layout in _TO_BNSD,
        f'input_layout is "{layout}", but must be one of {", ".join([*_TO_BNSD, TND])}.',
    )
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check(
            tensor.dim() == len(layout),
            f"{name} has shape {tuple(tensor.shape)}, but the layout {layout} has {len(layout)} axes.",
        )
    check(head_num > 0, f"head_num is {head_num}.")
    heads = Heads(query, key, value)
    if layout.endswith("H"):
        heads = _split_last(heads, head_num)
    if layout != TND:
        heads = Heads(*(tensor.permute(_TO_BNSD[layout]) for tensor in heads))
    _check_heads(heads, head_num)
    return heads


def _split_last(heads: Heads, head_num: int) -> Heads:
    """Split H into N and D: the query and ``head_num`` give D, the key gives N of key and value."""
    query, key, value = heads
    length, rest = divmod(query.shape[-1], head_num)
    check(not rest and length > 0, f"H of query is {query.shape[-1]}, no multiple of head_num {head_num}.")
    shared, rest = divmod(key.shape[-1], length)
    check(not rest and shared > 0, f"H of key is {key.shape[-1]}, but a head of query has length {length}.")
    check(value.shape[-1] % shared == 0, f"H of value is {value.shape[-1]}, but key has {shared} heads.")
    return Heads(
        query.unflatten(-1, (head_num, length)),
        key.unflatten(-1, (shared, length)),
        value.unflatten(-1, (shared, value.shape[-1] // shared)),
    )


def _check_heads(heads: Heads, head_num: int) -> None:
    query, key, value = heads
    queries, keys = query.shape[1], key.shape[1]
    check(queries == head_num, f"query has {queries} heads, but head_num is {head_num}.")
    check(keys > 0 and queries % keys == 0, f"{queries} heads of query cannot share {keys} heads of key.")
    check(
        key.shape[:-1] == value.shape[:-1],
        "key and value differ in their batch, heads or length.",
    )
    check(query.shape[-1] == key.shape[-1], "the heads of query and key differ in length.")
    check(query.dim() == 3 or query.shape[0] == key.shape[0], "query and key differ in their batch.")


def merge_heads(tensor: Tensor, layout: str) -> Tensor:
    """Return a tensor of the layout (B, N, S, D) in ``layout``."""
    to_bnsd = _TO_BNSD[layout]
    tensor = tensor.permute([to_bnsd.index(axis) for axis in range(4)])
    return tensor.flatten(-2) if layout.endswith("H") else tensor


def list_sequences(
    heads: Heads, query_ends: Sequence[int] | None, key_ends: Sequence[int] | None
) -> list[tuple[slice, slice]]:
    """Return the slice of each sequence in the query, and its slice in key and value, for the layout TND.

    Args:
        heads: Query, key and value in the layout (T, N, D).
        query_ends: Running totals of the lengths in the query; zeros at the end stand for empty sequences.
        key_ends: The same for key and value.

    Raises:
        ValueError: The ends are missing, do not ascend, exceed the tokens, or differ in number.
    """
    queries = _list_slices(query_ends, heads.query.shape[0], "actual_seq_qlen")
    keys = _list_slices(key_ends, heads.key.shape[0], "actual_seq_kvlen")
    check(
        len(queries) == len(keys),
        f"actual_seq_qlen has {len(queries)} elements, but actual_seq_kvlen has {len(keys)}.",
    )
    return list(zip(queries, keys))


def _list_slices(ends: Sequence[int] | None, tokens: int, name: str) -> list[slice]:
    if ends is None:
        raise ValueError(f"{name} is not given, which the layout {TND} needs.")
    stops: list[int] = []
    for end in ends:
        stops.append(int(end) or (stops[-1] if stops else 0))
    starts = [0, *stops[:-1]]
    check(
        all(0 <= start <= stop <= tokens for start, stop in zip(starts, stops)),
        f"{name} must ascend and end at no more than {tokens}, the number of tokens.",
    )
    return [slice(start, stop) for start, stop in zip(starts, stops)]


# -- masks of fused attention by ``sparse_mode`` (docs/standards.md#fused-operators) ----------------


ALL_TOKENS = 2**31 - 1
"""The default of ``pre_tockens`` and ``next_tockens``: more tokens than any sequence has."""

DEFAULT_MASK, ALL_MASK, LEFT_UP, RIGHT_DOWN, BAND = range(5)
"""The values of ``sparse_mode``: in 0 and 1 the mask is given in full, 2 and 3 are causal, 4 is a band."""

COMPRESSED_SHAPE = (2048, 2048)
"""The shape of the triangle that is given instead of a full mask in the modes 2, 3 and 4."""


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """The mask of an attention.

    A given mask is used unchanged: scores are masked where it is not zero. In the modes 2, 3 and 4 a mask of
    shape (2048, 2048) stands for the mask of the mode, by which query i sees the keys from i − ``before`` to
    i + ``after``. In the modes 2 and 3 it sees all earlier keys and no later ones. Positions are counted from
    the first query and key in mode 2, and from the last in the modes 3 and 4. msprobe 8.3 counts from the
    first in mode 4, which makes a difference if query and key differ in length.

    Without a given mask nothing is masked, whatever ``mode``, ``before`` and ``after`` are, as in the
    operator's documentation. msprobe 8.3 applies the mask of the mode instead.

    Attributes:
        full_mask: The mask, of a shape that can be broadcast to that of the scores; None for no mask.
        mode: The argument ``sparse_mode``.
        before: The argument ``pre_tockens``.
        after: The argument ``next_tockens``.
        is_longest: True if a full mask is that of the longest sequence and is cut for the others.

    Raises:
        ValueError: The mode is not from 0 to 4.
    """

    full_mask: Tensor | None
    mode: int = DEFAULT_MASK
    before: int = ALL_TOKENS
    after: int = ALL_TOKENS
    is_longest: bool = False

    def __post_init__(self) -> None:
        check(
            self.mode in range(DEFAULT_MASK, BAND + 1),
            f"sparse_mode is {self.mode}, but there are definitions for {DEFAULT_MASK} to {BAND} only.",
        )

    def make_mask(self, scores: Tensor) -> Tensor | None:
        """Return a mask of the scores (…, queries, keys), True for masked ones; None if nothing is masked."""
        if self.full_mask is None:
            return None
        queries, keys = scores.shape[-2:]
        if self.mode >= LEFT_UP and tuple(self.full_mask.shape[-2:]) == COMPRESSED_SHAPE:
            return self._make_mode_mask(queries, keys, scores.device)
        return (self.full_mask[..., :queries, :keys] if self.is_longest else self.full_mask) != 0

    def _make_mode_mask(self, queries: int, keys: int, device: torch.device) -> Tensor:
        before, after = (self.before, self.after) if self.mode == BAND else (ALL_TOKENS, 0)
        start = 0 if self.mode == LEFT_UP else keys - queries
        query_positions = torch.arange(queries, device=device).unsqueeze(1) + start
        distance = torch.arange(keys, device=device) - query_positions
        return (distance > after) | (distance < -before)
