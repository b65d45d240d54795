"""Which scores of attention are masked, by ``sparse_mode`` (spec: pre-check guide 6)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from probe_pytorch.precheck.references.checks import check

EVERYTHING = 2**31 - 1
"""A number of tokens that no sequence has: ``pre_tockens`` and ``next_tockens`` where they are not given."""

AS_GIVEN, ALL_GIVEN, LEFT_UP, RIGHT_DOWN, BAND = range(5)
"""The values of ``sparse_mode``: with 0 and 1 the mask is given in full, 2 and 3 are causal, 4 is a band."""

COMPRESSED = (2048, 2048)
"""The shape of the triangle that is given in the place of a whole mask in the modes 2, 3 and 4."""


@dataclass(frozen=True, slots=True)
class Masking:
    """The mask of an attention.

    A given mask is taken as it is: a score is masked where it is not zero. In the modes 2, 3 and 4 a mask of
    shape (2048, 2048) stands for the mask of the mode, by which a query i sees the keys from i − ``before``
    to i + ``after``, with (all, 0) for the modes 2 and 3. They are counted from the first query and key in
    mode 2 and from the last in the modes 3 and 4. The older tool counted from the first in mode 4, which
    matters where query and key differ in length.

    Where no mask is given, nothing is masked, whatever the mode, ``before`` and ``after``: so the operator's
    documentation has it. The older tool made up the mask of the mode.

    Attributes:
        given: The mask, of a shape that can be broadcast to that of the scores; None for none.
        mode: ``sparse_mode``.
        before, after: ``pre_tockens`` and ``next_tockens``.
        is_longest: A mask given in full is that of the longest sequence, to be cut to every other.

    Raises:
        ValueError: The mode is none of 0 to 4.
    """

    given: Tensor | None
    mode: int = AS_GIVEN
    before: int = EVERYTHING
    after: int = EVERYTHING
    is_longest: bool = False

    def __post_init__(self) -> None:
        check(
            self.mode in range(AS_GIVEN, BAND + 1),
            f"sparse_mode is {self.mode}, but there are definitions for {AS_GIVEN} to {BAND} only.",
        )

    def of(self, scores: Tensor) -> Tensor | None:
        """True where one of the scores (…, queries, keys) is masked; None for nowhere."""
        if self.given is None:
            return None
        queries, keys = scores.shape[-2:]
        if self.mode >= LEFT_UP and tuple(self.given.shape[-2:]) == COMPRESSED:
            return self._of_mode(queries, keys, scores.device)
        return (self.given[..., :queries, :keys] if self.is_longest else self.given) != 0

    def _of_mode(self, queries: int, keys: int, device: torch.device) -> Tensor:
        before, after = (self.before, self.after) if self.mode == BAND else (EVERYTHING, 0)
        start = 0 if self.mode == LEFT_UP else keys - queries
        seen = torch.arange(queries, device=device).unsqueeze(1) + start
        distance = torch.arange(keys, device=device) - seen
        return (distance > after) | (distance < -before)
