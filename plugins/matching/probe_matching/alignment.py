"""Longest common subsequence of two runs' calls, with equal properties of the calls as the tie-break.

The weight of a pair is ``PAIR_WEIGHT``, plus the weights of the properties that are equal. So the number of pairs
matters most, then modes and contents, then arguments and names. Equal calls at the beginnings and ends pair first,
which an optimal alignment does as well. The rest is solved row by row on numpy vectors by Hirschberg's method in linear
memory: Hirschberg, "A linear space algorithm for computing maximal common subsequences", CACM 18 (1975).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

PAIR_WEIGHT = 1 << 43
"""Weight of a pair; larger than that of any number of equal properties."""
CONTENT_WEIGHT = 1 << 21
"""Weight of equal contents; larger than that of any number of equal arguments and names."""
PROPERTY_WEIGHTS = np.array([2 * CONTENT_WEIGHT, CONTENT_WEIGHT, 2, 1])
"""Weights of equal modes, contents, arguments and names."""

MAX_TABLE_CELLS = 1 << 22
"""Largest number of cells that are solved at once, with a table for tracing back."""

IntArray = np.ndarray[Any, np.dtype[np.int64]]


class CallCodes(NamedTuple):
    """The calls of a run, each property as a sequence of codes; empty for a property that is not known.

    Attributes:
        kinds: Calls with equal codes may pair.
        names: Full names.
        modes: Whether gradients flow through the call.
        contents: The values that the call receives and returns.
        arguments: The numbers and texts that the call receives.
    """

    kinds: Sequence[int]
    names: Sequence[str]
    modes: Sequence[int] = ()
    contents: Sequence[int] = ()
    arguments: Sequence[int] = ()


def align(target: CallCodes, golden: CallCodes) -> Iterator[tuple[int, int]]:
    """Yield the pairs of positions of the best alignment, in order."""
    names: dict[str, int] = {}
    a, b = (_create_range(calls, names) for calls in (target, golden))
    head = 0
    while head < min(len(a), len(b)) and a.is_equal_at(head, b, head):
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a.is_equal_at(len(a) - 1 - tail, b, len(b) - 1 - tail):
        tail += 1
    yield from ((position, position) for position in range(head))
    yield from _yield_solution(a.select_range(head, len(a) - tail), b.select_range(head, len(b) - tail))
    yield from ((len(a) - tail + step, len(b) - tail + step) for step in range(tail))


def _create_range(calls: CallCodes, name_codes: dict[str, int]) -> _CallRange:
    names = [name_codes.setdefault(name, len(name_codes)) for name in calls.names]
    unknown = [0] * len(names)
    properties = [calls.modes or unknown, calls.contents or unknown, calls.arguments or unknown, names]
    return _CallRange(np.array(calls.kinds, np.int64), np.array(properties, np.int64), 0)


class _CallRange:
    """A range of one run's calls, with the position of its first call in the run.

    ``properties`` has a row for each of ``PROPERTY_WEIGHTS``.
    """

    def __init__(self, kinds: IntArray, properties: IntArray, start: int) -> None:
        self.kinds, self.properties, self.start = kinds, properties, start

    def __len__(self) -> int:
        return len(self.kinds)

    def is_equal_at(self, position: int, golden_range: _CallRange, golden_position: int) -> bool:
        is_same = (self.properties[:, position] == golden_range.properties[:, golden_position]).all()
        return bool(self.kinds[position] == golden_range.kinds[golden_position] and is_same)

    def select_range(self, start: int, end: int) -> _CallRange:
        return _CallRange(self.kinds[start:end], self.properties[:, start:end], self.start + start)

    def reverse(self) -> _CallRange:
        return _CallRange(self.kinds[::-1], self.properties[:, ::-1], 0)


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
    for position, kind in enumerate(a.kinds.tolist()):
        columns = places.get(kind)
        if columns is None:
            columns = places[kind] = np.flatnonzero(b.kinds == kind)
        if len(columns):
            best = row.copy()
            is_same = b.properties[:, columns] == a.properties[:, position, np.newaxis]
            weights = row[columns] + PAIR_WEIGHT + PROPERTY_WEIGHTS @ is_same
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
