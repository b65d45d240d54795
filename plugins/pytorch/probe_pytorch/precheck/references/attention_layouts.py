"""How query, key and value of attention are laid out (spec: pre-check guide 6).

B is the batch, S the length of a sequence, N the number of heads, D the length of a head, H is N·D, and T the
tokens of all sequences, one sequence behind the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from probe_pytorch.precheck.references.checks import check

TND = "TND"

_TO_BNSD = {"BSH": (0, 2, 1, 3), "SBH": (1, 2, 0, 3), "BSND": (0, 2, 1, 3), "BNSD": (0, 1, 2, 3)}
"""The order of the axes of each layout, H split into N and D, that makes it BNSD."""


class Heads(NamedTuple):
    """Query, key and value laid out as (B, N, S, D), or as (T, N, D)."""

    query: Tensor
    key: Tensor
    value: Tensor


def split_heads(query: Tensor, key: Tensor, value: Tensor, head_num: int, layout: str) -> Heads:
    """The three with their heads apart: (T, N, D) for the layout TND, (B, N, S, D) for every other.

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
    """H split into N and D; D is known from the query, N of key and value is known from the key."""
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
    ours, theirs = query.shape[1], key.shape[1]
    check(ours == head_num, f"query has {ours} heads, but head_num is {head_num}.")
    check(theirs > 0 and ours % theirs == 0, f"{ours} heads of query cannot share {theirs} heads of key.")
    check(
        key.shape[:-1] == value.shape[:-1],
        "key and value differ in their batch, heads or length.",
    )
    check(query.shape[-1] == key.shape[-1], "the heads of query and key differ in length.")
    check(query.dim() == 3 or query.shape[0] == key.shape[0], "query and key differ in their batch.")


def merge_heads(tensor: Tensor, layout: str) -> Tensor:
    """A tensor (B, N, S, D) in ``layout``."""
    to_bnsd = _TO_BNSD[layout]
    tensor = tensor.permute([to_bnsd.index(axis) for axis in range(4)])
    return tensor.flatten(-2) if layout.endswith("H") else tensor


def sequences(
    heads: Heads, query_ends: Sequence[int] | None, key_ends: Sequence[int] | None
) -> list[tuple[slice, slice]]:
    """Where each sequence of heads (T, N, D) lies in the query, and where in key and value.

    The ends are running totals of the lengths; zeros behind them stand for sequences that take no part.

    Raises:
        ValueError: The ends are missing, do not ascend, go beyond the tokens, or are not as many for both.
    """
    ours = _slices(query_ends, heads.query.shape[0], "actual_seq_qlen")
    theirs = _slices(key_ends, heads.key.shape[0], "actual_seq_kvlen")
    check(
        len(ours) == len(theirs),
        f"actual_seq_qlen has {len(ours)} elements, but actual_seq_kvlen has {len(theirs)}.",
    )
    return list(zip(ours, theirs))


def _slices(ends: Sequence[int] | None, tokens: int, name: str) -> list[slice]:
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
