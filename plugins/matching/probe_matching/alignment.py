"""Longest common subsequence of two runs' calls, with equal arguments and names as the tie-break.

The weight of a pair is ``PAIR_WEIGHT``, plus ``CONTENT_WEIGHT`` for equal contents, plus ``ARGUMENTS_WEIGHT`` for equal
arguments, plus 1 for equal full names, so the number of pairs matters most, then contents, then arguments and names.
Equal calls at the beginnings and ends pair first, which an optimal alignment does as well. The rest is solved
row by row on numpy vectors by Hirschberg's method in linear memory: Hirschberg, "A linear space algorithm for
computing maximal common subsequences", CACM 18 (1975).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

PAIR_WEIGHT = 1 << 42
"""Weight of a pair; larger than that of any number of equal contents and names."""
CONTENT_WEIGHT = 1 << 21
"""Weight of equal contents; larger than that of any number of equal arguments and names."""
ARGUMENTS_WEIGHT = 2
"""Weight of equal arguments; that of equal names is 1."""

MAX_TABLE_CELLS = 1 << 22
"""Largest number of cells that are solved at once, with a table for tracing back."""

IntArray = np.ndarray[Any, np.dtype[np.int64]]


def align(
    targets: Sequence[int],
    goldens: Sequence[int],
    target_names: Sequence[str],
    golden_names: Sequence[str],
    target_contents: Sequence[int] | None = None,
    golden_contents: Sequence[int] | None = None,
    target_arguments: Sequence[int] | None = None,
    golden_arguments: Sequence[int] | None = None,
) -> Iterator[tuple[int, int]]:
    """Yield the pairs of positions of the best alignment, in order.

    Args:
        targets: A code for each call of the target; calls with equal codes may pair.
        goldens: The same for the golden.
        target_names: Full names of the target's calls.
        golden_names: Full names of the golden's calls.
        target_contents: A code for the content of each call of the target; None if not known.
        golden_contents: The same for the golden.
        target_arguments: A code for the numbers and texts that each call of the target receives; None if not
            known.
        golden_arguments: The same for the golden.
    """
    names: dict[str, int] = {}
    a, b = (
        _CallRange(
            np.array(codes, np.int64),
            _encode_names(call_names, names),
            _create_code_array(contents, len(call_names)),
            _create_code_array(arguments, len(call_names)),
            0,
        )
        for codes, call_names, contents, arguments in (
            (targets, target_names, target_contents, target_arguments),
            (goldens, golden_names, golden_contents, golden_arguments),
        )
    )
    head = 0
    while head < min(len(a), len(b)) and a.is_equal_at(head, b, head):
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a.is_equal_at(len(a) - 1 - tail, b, len(b) - 1 - tail):
        tail += 1
    yield from ((position, position) for position in range(head))
    yield from _yield_solution(a.select_range(head, len(a) - tail), b.select_range(head, len(b) - tail))
    yield from ((len(a) - tail + step, len(b) - tail + step) for step in range(tail))


def _encode_names(names: Sequence[str], name_codes: dict[str, int]) -> IntArray:
    return np.array([name_codes.setdefault(name, len(name_codes)) for name in names], np.int64)


def _create_code_array(codes: Sequence[int] | None, count: int) -> IntArray:
    return np.zeros(count, np.int64) if codes is None else np.array(codes, np.int64)


class _CallRange:
    """A range of one run's calls, with the position of its first call in the run."""

    def __init__(self, codes: IntArray, names: IntArray, contents: IntArray, arguments: IntArray, start: int) -> None:
        self.codes, self.names, self.contents, self.arguments = codes, names, contents, arguments
        self.start = start

    def __len__(self) -> int:
        return len(self.codes)

    def is_equal_at(self, at: int, other: _CallRange, other_at: int) -> bool:
        return bool(
            self.codes[at] == other.codes[other_at]
            and self.names[at] == other.names[other_at]
            and self.contents[at] == other.contents[other_at]
            and self.arguments[at] == other.arguments[other_at]
        )

    def select_range(self, start: int, end: int) -> _CallRange:
        part = slice(start, end)
        return _CallRange(
            self.codes[part], self.names[part], self.contents[part], self.arguments[part], self.start + start
        )

    def reverse(self) -> _CallRange:
        return _CallRange(self.codes[::-1], self.names[::-1], self.contents[::-1], self.arguments[::-1], 0)


def _yield_solution(a: _CallRange, b: _CallRange) -> Iterator[tuple[int, int]]:
    if not len(a) or not len(b):
        return
    if len(a) == 1 or len(a) * len(b) <= MAX_TABLE_CELLS:
        yield from _trace_back(a, b)
        return
    middle = len(a) // 2
    upper, lower = a.select_range(0, middle), a.select_range(middle, len(a))
    forward = _compute_last_row(upper, b)
    backward = _compute_last_row(lower.reverse(), b.reverse())[::-1]
    cut = int(np.argmax(forward + backward))
    yield from _yield_solution(upper, b.select_range(0, cut))
    yield from _yield_solution(lower, b.select_range(cut, len(b)))


def _yield_rows(a: _CallRange, b: _CallRange) -> Iterator[IntArray]:
    """Yield rows 0, 1, … of the table of best weights; column j covers the first j calls of ``b``."""
    row = np.zeros(len(b) + 1, np.int64)
    yield row
    places: dict[int, IntArray] = {}
    fields = (a.codes, a.names, a.contents, a.arguments)
    for code, name, content, arguments in zip(*(field.tolist() for field in fields)):
        columns = places.get(code)
        if columns is None:
            columns = places[code] = np.flatnonzero(b.codes == code)
        if len(columns):
            best = row.copy()
            weights = row[columns] + PAIR_WEIGHT + (b.names[columns] == name)
            weights += CONTENT_WEIGHT * (b.contents[columns] == content)
            weights += ARGUMENTS_WEIGHT * (b.arguments[columns] == arguments)
            best[columns + 1] = np.maximum(best[columns + 1], weights)
            row = np.maximum.accumulate(best)
        yield row


def _compute_last_row(a: _CallRange, b: _CallRange) -> IntArray:
    row = np.zeros(0, np.int64)
    for row in _yield_rows(a, b):  # noqa: B007 - the last row is needed
        pass
    return row


def _trace_back(a: _CallRange, b: _CallRange) -> list[tuple[int, int]]:
    table = list(_yield_rows(a, b))
    pairs: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        best = table[i][j]
        if best == table[i - 1][j]:
            i -= 1
        elif best == table[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((a.start + i, b.start + j))
    return pairs[::-1]
