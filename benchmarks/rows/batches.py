"""Batches of the same samples in several arrangements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LENGTHS = (12, 7, 9, 4, 11, 5, 8, 6)
TOKENS = 12
ALL = tuple(range(8))


@dataclass(frozen=True)
class Batch:
    """Inputs of a model with what its loss needs.

    Attributes:
        inputs: The arguments of the model.
        weights: The weight of each place in the loss; None for the mean over all.
        labels: The classes of the samples; None for a loss of squares.
        tokens: The arguments of ``debugger.tokens``; None if it is not called.
    """

    inputs: tuple[Tensor, ...]
    weights: Tensor | None = None
    labels: Tensor | None = None
    tokens: tuple[Any, ...] | None = None

    def run(self, model: nn.Module, *, trains: bool) -> None:
        """Run the model, and the backward pass of a loss if ``trains``."""
        if not trains:
            with torch.no_grad():
                model(*self.inputs)
            return
        output = model(*self.inputs)
        if self.labels is not None:
            F.cross_entropy(output, self.labels).backward()
        elif self.weights is not None:
            ((output.pow(2).mean(-1) * self.weights).sum() / self.weights.sum()).backward()
        else:
            output.pow(2).mean().backward()


Maker = Callable[[], Batch]


def _words() -> Tensor:
    return torch.randint(1, 50, (8, TOKENS), generator=torch.Generator().manual_seed(1))


def _images() -> Tensor:
    return torch.randn(8, 3, 12, 12, generator=torch.Generator().manual_seed(3))


def _labels() -> Tensor:
    return torch.randint(0, 10, (8,), generator=torch.Generator().manual_seed(5))


def causal(order: Sequence[int], *, named: bool = False) -> Maker:
    """Return a batch of whole sequences for a decoder; ``named`` states its samples to the recorder."""

    def make() -> Batch:
        positions = torch.arange(TOKENS)
        mask = torch.tril(torch.ones(TOKENS, TOKENS))
        return Batch((_words()[[*order]], positions, mask), tokens=([*order],) if named else None)

    return make


def words(order: Sequence[int]) -> Maker:
    """Return a batch of whole sequences with classes."""
    return lambda: Batch((_words()[[*order]],), labels=_labels()[[*order]])


def images(order: Sequence[int]) -> Maker:
    """Return a batch of images with classes."""
    return lambda: Batch((_images()[[*order]],), labels=_labels()[[*order]])


def padded(
    side: str, order: Sequence[int], tokens: int = TOKENS, *, fault: str = "", tells_lengths: bool = True
) -> Maker:
    """Return a batch of sequences of several lengths, padded on one side.

    Args:
        side: The side of the padding.
        order: The samples.
        tokens: The number of places of each row.
        fault: ``positions`` to count padding, ``mask`` to leave padding visible.
        tells_lengths: True to state lengths and unclamped positions, False for negative positions.
    """

    def make() -> Batch:
        ids = torch.zeros(len(order), tokens, dtype=torch.long)
        positions = torch.full((len(order), tokens), -1)
        for row, sample in enumerate(order):
            length = LENGTHS[sample]
            place = slice(0, length) if side == "right" else slice(tokens - length, tokens)
            ids[row, place], positions[row, place] = _words()[sample, :length], torch.arange(length)
        is_real = positions >= 0
        seen = is_real if fault != "mask" else torch.ones_like(is_real)
        mask = (torch.tril(torch.ones(tokens, tokens)) * seen[:, None, :])[:, None]
        received = torch.arange(tokens).expand_as(ids) if fault == "positions" else positions.clamp(min=0)
        lengths = [LENGTHS[sample] for sample in order]
        counted = ([*order], positions.clamp(min=0), lengths)
        stated = counted if tells_lengths else ([*order], positions)
        return Batch((ids, received, mask), is_real.float(), tokens=stated)

    return make


def packed(order: Sequence[int], *, fault: str = "", padding: int = 0) -> Maker:
    """Return a row that holds samples one after the other.

    Args:
        order: The samples.
        fault: ``mask`` to let samples see each other, ``positions`` to count on from one sample to the next.
        padding: The number of places at the end that hold none.
    """

    def make() -> Batch:
        lengths = [LENGTHS[sample] for sample in order]
        ids = torch.cat([_words()[sample, : LENGTHS[sample]] for sample in order])
        positions = torch.cat([torch.arange(length) for length in lengths])
        owner = torch.repeat_interleave(torch.arange(len(order)), torch.tensor(lengths))
        ids, positions = F.pad(ids, (0, padding)), F.pad(positions, (0, padding))
        owner = F.pad(owner, (0, padding), value=-1)
        mask = torch.tril(torch.ones(len(ids), len(ids)))
        if fault != "mask":
            mask = mask * (owner[:, None] == owner[None, :])
        received = torch.arange(len(ids)) if fault == "positions" else positions
        weights = (owner >= 0).float()[None]
        stated = ([*order], positions[None], lengths)
        return Batch((ids[None], received[None], mask[None, None]), weights, tokens=stated)

    return make
