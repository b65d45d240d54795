"""Samples and tokens of a batch, as a script states them: ``tokens.json`` (docs/formats.md#tokens-json)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from probe_core.errors import UserError

TOKENS_FILE = "tokens.json"
SCHEMA = 1
"""Version of the layout, increased if an older reader would misread the file."""
PADDING_ID = -1
"""Number of the sample at places without a sample."""

TokenRanges = list[list[int]]
"""Ranges of tokens, each as (sample, first token, count)."""

Shape = tuple[int, ...]

EXAMPLE = "Use, for example: debugger.tokens(ids=[0, 1], positions=[[0, 1, 2], [0, 1, 2]], lengths=[3, 2])"


class Layout(Enum):
    """The arrangement of samples in a batch."""

    WHOLE_ROWS = auto()
    """A sample in each row, without positions of tokens."""
    PADDED_ROWS = auto()
    """A sample in each row, padded to the length of the longest sample."""
    PACKED = auto()
    """Samples one after the other, each from its first token to its length."""
    PACKED_POSITIONS = auto()
    """Samples one after the other in a row of positions, with padding after the last sample."""
    TOKENS = auto()
    """Any sample at each place."""


@dataclass(frozen=True, slots=True)
class BatchTokens:
    """The arguments of ``debugger.tokens``, which are not converted yet, because tensors may be on a device.

    Attributes:
        ids: Numbers of samples: one for each row, each token, or each sequence of a packed batch.
        positions: The position of each token within its sample, of shape (rows, tokens) or (tokens,); None
            if rows are compared as a whole, or if samples are packed one after the other.
        lengths: The number of tokens of each sample; None if no place is padding.
    """

    ids: Any
    positions: Any = None
    lengths: Any = None

    @classmethod
    def from_arguments(cls, ids: Any, positions: Any, lengths: Any) -> BatchTokens:
        """Return copies, which the script cannot overwrite. Does not wait for a device.

        Raises:
            UserError: The shapes of the arguments do not belong together.
        """
        tokens = cls(*map(_copy, (ids, positions, lengths)))
        tokens.find_layout()
        return tokens

    def find_layout(self) -> Layout:
        """Return the layout that follows from the shapes of the arguments.

        Raises:
            UserError: The shapes of the arguments do not belong together.
        """
        ids, positions, lengths = map(_read_shape, (self.ids, self.positions, self.lengths))
        problem = _find_shape_problem(ids, positions, lengths)
        if problem:
            raise UserError(f"tokens(): {problem}.", EXAMPLE)
        if len(ids) == 2:
            return Layout.TOKENS
        if not positions:
            return Layout.PACKED if lengths else Layout.WHOLE_ROWS
        return Layout.PADDED_ROWS if _count_rows(positions) == ids[0] else Layout.PACKED_POSITIONS

    def format_file(self) -> str:
        """Return the content of the file. If the arguments contradict each other, it states the problem."""
        try:
            shape, ranges = self._list_ranges()
            content: dict[str, Any] = {"schema": SCHEMA, "shape": shape, "runs": ranges}
        except (ValueError, TypeError, OverflowError) as error:
            content = {"schema": SCHEMA, "problem": str(error)}
        return json.dumps(content) + "\n"

    def _list_ranges(self) -> tuple[Shape, TokenRanges]:
        """Return the shape of the batch, and ranges of tokens that cover it."""
        layout = self.find_layout()
        ids, positions = _convert_to_lists(self.ids), _convert_to_lists(self.positions)
        lengths = [int(length) for length in _convert_to_lists(self.lengths) or ()]
        if min(lengths, default=0) < 0:
            raise ValueError("a length is negative")
        if layout is Layout.WHOLE_ROWS:
            return (len(ids),), [[int(sample), 0, 1] for sample in ids]
        if layout is Layout.PACKED:
            return (1, sum(lengths)), [[int(sample), 0, count] for sample, count in zip(ids, lengths) if count]
        rows = positions if isinstance(positions[0], list) else [positions]
        if layout is Layout.TOKENS:
            places = [list(zip(*pair)) for pair in zip(ids, rows)]
        elif layout is Layout.PADDED_ROWS:
            counts: Sequence[int | None] = lengths or [None] * len(rows)
            places = [_locate_row_tokens(sample, row, count) for sample, row, count in zip(ids, rows, counts)]
        else:
            places = [_locate_packed_tokens(ids, rows[0], lengths)]
        return (len(rows), len(rows[0])), [*_iterate_ranges([place for row in places for place in row])]


def _find_shape_problem(ids: Shape, positions: Shape, lengths: Shape) -> str:
    """Return why the shapes of the arguments do not belong together; empty if they do."""
    if not ids or len(ids) > 2 or 0 in ids:
        return "ids must be a list of sample numbers, such as [0, 1, 2], or have the shape (rows, tokens)"
    if positions and (len(positions) > 2 or 0 in positions):
        return f"positions must have the shape (rows, tokens) or (tokens,), not {positions}"
    if len(ids) == 2:
        if positions != ids:
            return f"ids of tokens need positions of the same shape {ids}" + (f", not {positions}" if positions else "")
        return "ids of tokens mark padding by negative numbers, so lengths have no meaning" if lengths else ""
    if lengths and lengths != ids:
        return f"lengths must contain a number for each of the {ids[0]} ids, and have the shape {lengths}"
    rows = _count_rows(positions)
    if positions and rows != ids[0] and (not lengths or rows != 1):
        return (
            f"{ids[0]} samples in {rows} rows of positions need lengths, and a single row that contains the samples "
            "one after the other"
        )
    return ""


def _locate_row_tokens(sample: Any, positions: list[Any], length: int | None) -> list[tuple[int, int]]:
    """Return sample and token of each place of a row that may be padded at either end.

    The tokens are the first ``length`` consecutive places whose positions increase by one, starting at the smallest
    position that is not negative.
    """
    integer_positions = [int(position) for position in positions]
    if length is None:
        return [(int(sample) if position >= 0 else PADDING_ID, position) for position in integer_positions]
    if not length:
        return [(PADDING_ID, 0)] * len(integer_positions)
    if length > len(integer_positions):
        raise ValueError(f"a length is {length}, and rows have {len(integer_positions)} places")
    starts = [
        start
        for start in range(len(integer_positions) - length + 1)
        if all(integer_positions[start + n] == integer_positions[start] + n for n in range(length))
        and integer_positions[start] >= 0
    ]
    if not starts:
        raise ValueError(f"the positions of sample {sample} do not count {length} tokens")
    first = min(starts, key=lambda start: integer_positions[start])
    if sum(integer_positions[start] == integer_positions[first] for start in starts) > 1:
        raise ValueError(f"several places may hold the tokens of sample {sample}; pass negative positions for padding")
    return [
        (int(sample) if first <= place < first + length else PADDING_ID, position)
        for place, position in enumerate(integer_positions)
    ]


def _locate_packed_tokens(ids: Sequence[Any], positions: list[Any], lengths: Sequence[int]) -> list[tuple[int, int]]:
    """Return sample and token of each place of a row that holds samples one after the other."""
    if sum(lengths) > len(positions):
        raise ValueError(f"the lengths add up to {sum(lengths)}, and positions has {len(positions)} places")
    samples = [int(sample) for sample, length in zip(ids, lengths) for _ in range(length)]
    samples += [PADDING_ID] * (len(positions) - len(samples))
    return [*zip(samples, map(int, positions))]


def _iterate_ranges(places: Sequence[tuple[Any, Any]]) -> Iterator[list[int]]:
    """Yield ranges of (sample, first token, count); padding has the token 0."""
    current: list[int] = []
    for sample, token in places:
        is_padding = sample < 0 or token < 0
        sample, token = (PADDING_ID, 0) if is_padding else (int(sample), int(token))
        if current and current[0] == sample and (is_padding or token == current[1] + current[2]):
            current[2] += 1
            continue
        if current:
            yield current
        current = [sample, token, 1]
    if current:
        yield current


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
            raise UserError(
                "tokens(): the rows of ids, positions or lengths differ in length.",
                "Pad them to the same length, or pack them into a single row.",
            )
        return (len(value), *(inner.pop() if inner else ()))
    return ()


def _count_rows(shape: Shape) -> int:
    return shape[0] if len(shape) == 2 else 1


def _convert_to_lists(value: Any) -> Any:
    """Return tensors as nested lists; this waits for their device."""
    if isinstance(value, list):
        return [_convert_to_lists(item) for item in value]
    return value.tolist() if hasattr(value, "tolist") else value
