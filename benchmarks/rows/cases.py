"""Pairs of runs with common rows: 20 that agree, and 20 with a planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from rows.batches import ALL, Maker, causal, images, packed, padded, words
from rows.nets import Convolutional, Decoder, Recurrent, SequenceFirst, Vision, build

SHUFFLED = (3, 1, 7, 0, 2, 6, 5, 4)
FILE = "tokens.json"
REORDERED = "target=0-7,golden=" + ",".join(map(str, SHUFFLED))


@dataclass(frozen=True)
class Case:
    """A pair of runs.

    Attributes:
        name: Its name.
        kind: The class of the model.
        target: The batch of the target.
        golden: The batch of the golden.
        rows: The value of ``--rows``.
        trains: True to run a backward pass.
        level: The level of the recording.
        dtype: The dtype of the model.
        settings: Arguments of the model.
        fault: The fault of the target's model; empty for none.
        named: A pattern for the call that the first cause must name; empty for a pair without a fault.
    """

    name: str
    kind: type[nn.Module]
    target: Maker
    golden: Maker
    rows: str
    trains: bool = True
    level: str = "mix"
    dtype: torch.dtype = torch.float32
    settings: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    named: str = ""

    def model(self, *, is_target: bool) -> nn.Module:
        """Return the model of one side."""
        return build(self.kind, self.fault if is_target else "", **self.settings).to(self.dtype)


def _of_rows() -> Iterator[Case]:
    """Yield pairs whose rows are chosen by number."""
    one, several = "target=0,golden=3", "target=0-1,golden=5,2"
    yield Case("decoder-one", Decoder, causal([3]), causal(ALL), one)
    yield Case("decoder-two", Decoder, causal([5, 2]), causal(ALL), several)
    yield Case("decoder-order", Decoder, causal(SHUFFLED), causal(ALL), REORDERED)
    yield Case("decoder-overlap", Decoder, causal([9 % 8, 4, 6]), causal([6, 0, 2, 4]), "target=1,2 golden=3,0")
    yield Case("decoder-bf16", Decoder, causal([3]), causal(ALL), one, False, "L1", torch.bfloat16)
    yield Case("folded-one", Decoder, causal([3]), causal(ALL), one, settings={"folded": True})
    yield Case("folded-order", Decoder, causal(SHUFFLED), causal(ALL), REORDERED, settings={"folded": True})
    yield Case("encoder-one", SequenceFirst, words([3]), words(ALL), one)
    yield Case("encoder-order", SequenceFirst, words(SHUFFLED), words(ALL), REORDERED)
    yield Case("images-one", Convolutional, images([3]), images(ALL), one)
    yield Case("images-order", Convolutional, images(SHUFFLED), images(ALL), REORDERED)
    yield Case("recurrent-one", Recurrent, words([3]), words(ALL), one)
    yield Case("vision-one", Vision, images([3]), images(ALL), one, level="L1")
    yield Case("vision-order", Vision, images(SHUFFLED), images(ALL), REORDERED, level="L0")


def _of_files() -> Iterator[Case]:
    """Yield pairs whose samples and tokens are stated by the scripts."""
    some = (0, 1, 2, 3)
    yield Case("named-samples", Decoder, causal([6, 3], named=True), causal(ALL, named=True), FILE)
    yield Case("left-right", Decoder, padded("left", some), padded("right", some), FILE)
    right = padded("right", some, tells_lengths=False)
    yield Case("left-wide", Decoder, padded("left", (2, 0, 3), 15), right, FILE, settings={"folded": True})
    yield Case("packed-padded", Decoder, packed(some), padded("right", some), FILE)
    yield Case("packed-some", Decoder, packed((3, 1), padding=5), padded("left", (1, 6, 3)), FILE, level="L1")
    yield Case("packed-packed", Decoder, packed((2, 5, 1)), packed((1, 2, 4)), FILE, trains=False)


PAIRS = [*_of_rows(), *_of_files()]


def _faulty(pair: str, fault: str, named: str, **changes: Any) -> Case:
    """Return a pair with a fault."""
    case = next(case for case in PAIRS if case.name == pair)
    return replace(case, name=f"{pair}-{fault or 'batch'}", fault=fault, named=named, **changes)


FAULTS = [
    _faulty("decoder-one", "eps", r"layer_norm\.2"),
    _faulty("decoder-one", "scale", r"__truediv__\.1"),
    _faulty("decoder-two", "gelu", r"gelu\.1"),
    _faulty("decoder-order", "clamp", r"Clamp|full"),
    _faulty("decoder-order", "axis", r"softmax\.1"),
    _faulty("decoder-overlap", "heads", r"flip\.0|__matmul__\.3"),
    _faulty("decoder-bf16", "clamp", r"Clamp|full|minimum"),
    _faulty("folded-one", "eps", r"layer_norm\.2"),
    _faulty("folded-order", "gelu", r"gelu\.1"),
    _faulty("encoder-one", "pool", r"amax\.0|mean\.0"),
    _faulty("encoder-order", "pool", r"amax\.0|mean\.0"),
    _faulty("images-one", "eps", r"batch_norm\.0"),
    _faulty("images-order", "slope", r"leaky_relu\.0"),
    _faulty("recurrent-one", "last", r"__add__\.0"),
    _faulty("vision-order", "clamp", r"Clamp|Block|down"),
    _faulty("left-right", "", r"embedding\.1|places", target=padded("left", (0, 1, 2, 3), fault="positions")),
    _faulty("left-wide", "", r"softmax", target=padded("left", (2, 0, 3), 15, fault="mask")),
    _faulty("packed-padded", "", r"softmax", target=packed((0, 1, 2, 3), fault="mask")),
    _faulty("packed-some", "", r"embedding\.1|places", target=packed((3, 1), fault="positions", padding=5)),
    _faulty("packed-packed", "gelu", r"gelu\.1"),
]
CASES = {case.name: case for case in (*PAIRS, *FAULTS)}
