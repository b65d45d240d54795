"""The places of samples and tokens in a batch, and the places that two batches have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probe_core.errors import UserError
from probe_core.files.user_files import read_regular_file
from probe_core.model.columns import Array

SCHEMA = 1
MAX_PLACES = 1 << 26
"""Largest number of places in a batch that a file may describe."""


@dataclass(frozen=True, slots=True)
class BatchSize:
    """The sizes of a batch.

    Attributes:
        samples: The number of rows.
        tokens: The number of tokens of each row, padding included; 0 if tokens are not distinguished.
    """

    samples: int
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Pick:
    """The places of one sample in a batch: its row, and there the places of its tokens; None for all."""

    row: int
    tokens: Array | None = None


@dataclass(frozen=True, slots=True)
class Places:
    """The places of a batch that are compared, in the order in which they pair with the other batch."""

    batch: BatchSize
    picks: tuple[Pick, ...]

    @property
    def is_whole(self) -> bool:
        """True if no place is left out."""
        if not self.batch.tokens:
            return len(self.picks) == self.batch.samples
        count = sum(len(pick.tokens) for pick in self.picks if pick.tokens is not None)
        return count == self.batch.samples * self.batch.tokens


@dataclass(frozen=True, slots=True)
class TokenFile:
    """The samples and tokens at the places of a batch.

    Attributes:
        batch: The sizes of the batch.
        samples: The sample of each place, of shape (rows, tokens), or (rows, 1) without tokens; negative
            for padding.
        tokens: The number of the token within its sample, of the same shape.
    """

    batch: BatchSize
    samples: Array
    tokens: Array


def read_tokens(path: Path) -> TokenFile:
    """Return the content of a file of samples and tokens (docs/formats.md#tokens-json).

    Raises:
        UserError: The file cannot be read, or its content is not valid.
    """
    fix = "Call debugger.tokens(ids, positions, lengths) in both runs, or give rows: --rows target=0,golden=3."
    try:
        document = json.loads(read_regular_file(path).decode("utf-8"))
        return _parse(document)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.", fix) from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error) if isinstance(error, _InvalidError) else "it is not valid"
        raise UserError(f"{path} does not list samples and tokens: {reason}.", fix) from None


class _InvalidError(ValueError):
    """A file whose content contradicts itself."""


def _parse(document: Any) -> TokenFile:
    if document["schema"] != SCHEMA:
        raise _InvalidError("it was written by another version of probe")
    if "problem" in document:
        raise _InvalidError(str(document["problem"]))
    shape = [int(size) for size in document["shape"]]
    if len(shape) not in (1, 2) or min(shape) < 1 or shape[0] * shape[-1] > MAX_PLACES:
        raise _InvalidError("its shape is not that of a batch")
    runs = np.array(document["runs"], np.int64).reshape(-1, 3)
    count = int(np.prod(shape))
    if (runs[:, 2] < 1).any() or (runs[:, 2] > count).any() or int(runs[:, 2].sum()) != count:
        raise _InvalidError("its runs do not cover its shape")
    samples = np.repeat(runs[:, 0], runs[:, 2])
    starts = np.cumsum(runs[:, 2]) - runs[:, 2]
    tokens = np.repeat(runs[:, 1] - starts, runs[:, 2]) + np.arange(count)
    if len(shape) == 1:
        tokens = np.zeros_like(samples)
    real = np.stack((samples, tokens), axis=1)[samples >= 0]
    if len(np.unique(real, axis=0)) < len(real):
        raise _InvalidError("it lists a token of a sample twice")
    sizes = (shape[0], shape[1] if len(shape) == 2 else 1)
    batch = BatchSize(shape[0], shape[1] if len(shape) == 2 else 0)
    return TokenFile(batch, samples.reshape(sizes), tokens.reshape(sizes))


def find_common_places(target: TokenFile, golden: TokenFile) -> tuple[Places, Places]:
    """Return the places of the samples and tokens that both batches contain, in the order of the target.

    Raises:
        UserError: There are no common places, or only one of the files distinguishes tokens.
    """
    if bool(target.batch.tokens) != bool(golden.batch.tokens):
        raise UserError(
            "Only one of both runs noted the positions of its tokens.",
            "Call debugger.tokens with positions or lengths in both runs, or in none.",
        )
    picks: tuple[list[Pick], list[Pick]] = [], []
    rows = [_find_rows(file) for file in (target, golden)]
    for sample in dict.fromkeys(target.samples[target.samples >= 0].tolist()):
        if sample not in rows[1]:
            continue
        pair = rows[0][sample], rows[1][sample]
        if not target.batch.tokens:
            for selection, row in zip(picks, pair):
                selection.append(Pick(row))
            continue
        tokens = [np.flatnonzero(file.samples[row] == sample) for file, row in zip((target, golden), pair)]
        numbers = [file.tokens[row][selection] for file, row, selection in zip((target, golden), pair, tokens)]
        _, first, second = np.intersect1d(numbers[0], numbers[1], assume_unique=True, return_indices=True)
        shared = first, second
        if len(first):
            for selection, row, places, chosen in zip(picks, pair, tokens, shared):
                selection.append(Pick(row, places[chosen]))
    if not picks[0]:
        raise UserError(
            "Both runs have no sample and token in common.",
            "Pass the same numbers for the same samples to debugger.tokens in both runs.",
        )
    return Places(target.batch, tuple(picks[0])), Places(golden.batch, tuple(picks[1]))


def _find_rows(file: TokenFile) -> dict[int, int]:
    """Return the row of each sample."""
    rows: dict[int, int] = {}
    for row, samples in enumerate(file.samples):
        for sample in np.unique(samples[samples >= 0]).tolist():
            if rows.setdefault(sample, row) != row:
                raise UserError(
                    f"The tokens of sample {sample} are in several rows of a batch.",
                    "Pass a different number for each row to debugger.tokens.",
                )
    return rows


def select_places(
    batches: Sequence[BatchSize], rows: Sequence[Sequence[int]], names: Sequence[str] = ("target", "golden")
) -> tuple[Places, Places]:
    """Return the places of the rows that the user chose; all rows of a batch if the user chose none of it.

    Raises:
        UserError: A batch has no such row, or both runs have unequal numbers of rows.
    """
    chosen = [batch_rows or range(batch.samples) for batch_rows, batch in zip(rows, batches)]
    for batch_rows, batch, name in zip(chosen, batches, names):
        if max(batch_rows) >= batch.samples:
            raise UserError(
                f"The batch of the {name} has no row {max(batch_rows)}: it holds {batch.samples}, counted from 0.",
                "Choose other rows with --rows.",
            )
    if len(chosen[0]) != len(chosen[1]):
        raise UserError(
            f"--rows leaves {len(chosen[0])} rows of the target and {len(chosen[1])} of the golden.",
            "Name as many rows of both runs, such as --rows target=0,golden=3.",
        )
    target, golden = (Places(batch, tuple(map(Pick, batch_rows))) for batch, batch_rows in zip(batches, chosen))
    return target, golden
