"""Samples and tokens of a batch, as a script states them: ``tokens.json`` (docs/formats.md#tokens-json)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probe_core.errors import UserError

TOKENS_FILE = "tokens.json"
SCHEMA = 1
"""Version of the layout; it grows where a reader of an older one would read something wrong."""
PADDING_ID = -1
"""Number of the sample at places that hold none."""

Runs = list[list[int]]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TokenNote:
    """The arguments of ``debugger.tokens``, unread: tensors may still be on a device.

    Attributes:
        ids: Numbers of samples, one a row, one a token, or one a sequence of a packed batch.
        positions: The position of each token within its sample, of shape (rows, tokens) or (tokens,); None
            if rows are compared as a whole, or if samples are packed one after the other.
        lengths: The number of tokens of each sample; None if no place is padding.
    """

    ids: Any
    positions: Any = None
    lengths: Any = None

    @classmethod
    def from_arguments(cls, ids: Any, positions: Any, lengths: Any) -> TokenNote:
        """Return a note with copies, which the script cannot overwrite; no device is waited for.

        Raises:
            UserError: The shapes of the arguments do not belong together.
        """
        note = cls(*map(_copy, (ids, positions, lengths)))
        note.check()
        return note

    def check(self) -> None:
        """Raise a UserError if the shapes of the arguments do not belong together."""
        ids, positions, lengths = map(_read_shape, (self.ids, self.positions, self.lengths))
        fix = "For example debugger.tokens(ids=[0, 1], positions=[[0, 1, 2], [0, 1, 2]], lengths=[3, 2])."
        if not ids or len(ids) > 2 or 0 in ids:
            raise UserError("tokens() needs the numbers of the samples, such as ids=[0, 1, 2].", fix)
        if positions and (len(positions) > 2 or 0 in positions):
            raise UserError("tokens(): positions must have the shape (rows, tokens) or (tokens,).", fix)
        if len(ids) == 2 and positions and positions != ids:
            raise UserError("tokens(): ids of tokens and positions must have the same shape.", fix)
        if len(ids) == 2 and not positions:
            raise UserError("tokens(): ids of tokens need positions.", fix)
        if lengths and lengths != ids[:1]:
            raise UserError("tokens(): lengths must hold one number for each of ids.", fix)
        is_packed = len(ids) == 1 and bool(positions) and _count_rows(positions) != ids[0]
        if is_packed and (not lengths or _count_rows(positions) != 1):
            raise UserError(
                f"tokens(): {ids[0]} samples in {_count_rows(positions)} rows of positions need lengths, and "
                "one row that holds the samples one after the other.",
                fix,
            )

    def text(self) -> str:
        """Return the content of the file, or in it the problem of arguments that contradict each other."""
        try:
            shape, runs = self._list_runs()
            content: dict[str, Any] = {"schema": SCHEMA, "shape": shape, "runs": runs}
        except (ValueError, TypeError, OverflowError) as error:
            content = {"schema": SCHEMA, "problem": str(error)}
        return json.dumps(content) + "\n"

    def _list_runs(self) -> tuple[Shape, Runs]:
        """Return the shape of the batch, and runs of (sample, first token, count) that cover it."""
        ids, positions = _convert_to_lists(self.ids), _convert_to_lists(self.positions)
        lengths = None if self.lengths is None else [int(length) for length in _convert_to_lists(self.lengths)]
        if lengths is not None and min(lengths) < 0:
            raise ValueError("a length is negative")
        if positions is None and lengths is None:
            return (len(ids),), [[int(sample), 0, 1] for sample in ids]
        if positions is None:
            assert lengths is not None
            return (1, sum(lengths)), [[s, 0, count] for s, count in zip(map(int, ids), lengths) if count]
        rows = positions if isinstance(positions[0], list) else [positions]
        if isinstance(ids[0], list):
            places = [list(zip(*pair)) for pair in zip(ids, rows)]
        elif len(rows) == len(ids):
            counts: Sequence[int | None] = lengths or [None] * len(rows)
            places = [_locate_row_tokens(sample, row, count) for sample, row, count in zip(ids, rows, counts)]
        else:
            assert lengths is not None
            places = [_locate_packed_tokens(ids, rows[0], lengths)]
        return (len(rows), len(rows[0])), [*_iterate_runs([place for row in places for place in row])]


def _locate_row_tokens(sample: Any, positions: list[Any], length: int | None) -> list[tuple[int, int]]:
    """Return sample and token of each place of a row that may be padded at either end.

    The tokens are the ``length`` consecutive places whose positions grow by one from the least start.
    """
    whole = [int(position) for position in positions]
    if length is None:
        return [(int(sample) if position >= 0 else PADDING_ID, position) for position in whole]
    if not length:
        return [(PADDING_ID, 0)] * len(whole)
    if length > len(whole):
        raise ValueError(f"a length is {length}, and rows have {len(whole)} places")
    starts = [
        start
        for start in range(len(whole) - length + 1)
        if all(whole[start + n] == whole[start] + n for n in range(length)) and whole[start] >= 0
    ]
    if not starts:
        raise ValueError(f"the positions of sample {sample} do not count {length} tokens")
    first = min(starts, key=lambda start: whole[start])
    if sum(whole[start] == whole[first] for start in starts) > 1:
        raise ValueError(f"several places may hold the tokens of sample {sample}; pass negative positions for padding")
    return [
        (int(sample) if first <= place < first + length else PADDING_ID, position)
        for place, position in enumerate(whole)
    ]


def _locate_packed_tokens(ids: Sequence[Any], positions: list[Any], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return sample and token of each place of a row that holds samples one after the other."""
    if sum(lengths) > len(positions):
        raise ValueError(f"the lengths add up to {sum(lengths)}, and positions has {len(positions)} places")
    samples = [int(sample) for sample, length in zip(ids, lengths) for _ in range(length)]
    samples += [PADDING_ID] * (len(positions) - len(samples))
    return [*zip(samples, map(int, positions))]


def _iterate_runs(places: Sequence[tuple[Any, Any]]) -> Iterator[list[int]]:
    """Yield runs of (sample, first token, count); padding has the token 0."""
    run: list[int] = []
    for sample, token in places:
        is_padding = sample < 0 or token < 0
        sample, token = (PADDING_ID, 0) if is_padding else (int(sample), int(token))
        if run and run[0] == sample and (is_padding or token == run[1] + run[2]):
            run[2] += 1
            continue
        if run:
            yield run
        run = [sample, token, 1]
    if run:
        yield run


def _copy(value: Any) -> Any:
    """Return a copy of a tensor on its own device, or of a list."""
    if hasattr(value, "detach"):
        return value.detach().clone()
    if hasattr(value, "tolist"):
        return value.copy()
    if isinstance(value, (list, tuple, range)):
        return [_copy(item) for item in value]
    return value


def _read_shape(value: Any) -> Shape:
    """Return the shape of a tensor or of nested lists; empty for None and for single numbers."""
    if hasattr(value, "shape"):
        return tuple(value.shape)
    if isinstance(value, list):
        inner = {_read_shape(item) for item in value}
        if len(inner) > 1:
            raise UserError("tokens(): rows have different numbers of places.", "Pad them, or pack them.")
        return (len(value), *(inner.pop() if inner else ()))
    return ()


def _count_rows(shape: Shape) -> int:
    return shape[0] if len(shape) == 2 else 1


def _convert_to_lists(value: Any) -> Any:
    """Return a tensor as nested lists; this waits for its device."""
    return value.tolist() if hasattr(value, "tolist") else value
