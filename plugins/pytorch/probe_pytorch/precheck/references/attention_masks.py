"""Masks of fused attention by ``sparse_mode`` (docs/standards.md#fused-operators)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check

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
        given: The mask, of a shape that can be broadcast to that of the scores; None for no mask.
        mode: The argument ``sparse_mode``.
        before: The argument ``pre_tockens``.
        after: The argument ``next_tockens``.
        is_longest: True if a full mask is that of the longest sequence and is cut for the others.

    Raises:
        ValueError: The mode is not from 0 to 4.
    """

    given: Tensor | None
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
        if self.given is None:
            return None
        queries, keys = scores.shape[-2:]
        if self.mode >= LEFT_UP and tuple(self.given.shape[-2:]) == COMPRESSED_SHAPE:
            return self._make_mode_mask(queries, keys, scores.device)
        return (self.given[..., :queries, :keys] if self.is_longest else self.given) != 0

    def _make_mode_mask(self, queries: int, keys: int, device: torch.device) -> Tensor:
        before, after = (self.before, self.after) if self.mode == BAND else (ALL_TOKENS, 0)
        start = 0 if self.mode == LEFT_UP else keys - queries
        query_positions = torch.arange(queries, device=device).unsqueeze(1) + start
        distance = torch.arange(keys, device=device) - query_positions
        return (distance > after) | (distance < -before)
