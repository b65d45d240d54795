"""The longest common subsequence of two runs' calls, with equal names as the tie-break.

Weighted LCS: a pair counts ``PAIR``, ``CONTENT`` more where the content is alike, and one more where the
full names are equal, so that pairs come first, content second and equal names last. Equal heads and tails are
taken off first (an optimal alignment pairs them, for no pair counts more). The rest is solved row by row on
numpy vectors with Hirschberg's division, so memory stays linear: Hirschberg, "A linear space algorithm for
computing maximal common subsequences", CACM 18 (1975).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

PAIR = 1 << 42
"""Weight of a pair; larger than that of any number of like contents and equal names."""
CONTENT = 1 << 21
"""Weight of a like content; larger than any number of equal names."""

SMALL = 1 << 22
"""Cells that are solved at once, with a table to trace back in."""

IntArray = np.ndarray[Any, np.dtype[np.int64]]


def align(
    ours: Sequence[int],
    theirs: Sequence[int],
    our_names: Sequence[str],
    their_names: Sequence[str],
    our_contents: Sequence[int] | None = None,
    their_contents: Sequence[int] | None = None,
) -> Iterator[tuple[int, int]]:
    """Pairs of positions, in order, of the best alignment.

    Args:
        ours: What each call of the target may pair on, as a code.
        theirs: The same for the golden.
        our_names: Full names of the target's calls.
        their_names: Full names of the golden's calls.
        our_contents: What each call of the target holds, as a code; nothing where it is not known.
        their_contents: The same for the golden.
    """
    names: dict[str, int] = {}
    a = _Calls(np.array(ours, np.int64), _codes(our_names, names), _contents(our_contents, len(ours)), 0)
    b = _Calls(
        np.array(theirs, np.int64), _codes(their_names, names), _contents(their_contents, len(theirs)), 0
    )
    head = 0
    while head < min(len(a), len(b)) and a.same(head, b, head):
        head += 1
    tail = 0
    while tail < min(len(a), len(b)) - head and a.same(len(a) - 1 - tail, b, len(b) - 1 - tail):
        tail += 1
    yield from ((position, position) for position in range(head))
    yield from _solve(a.part(head, len(a) - tail), b.part(head, len(b) - tail))
    yield from ((len(a) - tail + step, len(b) - tail + step) for step in range(tail))


def _codes(names: Sequence[str], known: dict[str, int]) -> IntArray:
    return np.array([known.setdefault(name, len(known)) for name in names], np.int64)


def _contents(codes: Sequence[int] | None, count: int) -> IntArray:
    return np.zeros(count, np.int64) if codes is None else np.array(codes, np.int64)


class _Calls:
    """A stretch of one run's calls, and where in the run it begins."""

    def __init__(self, codes: IntArray, names: IntArray, contents: IntArray, start: int) -> None:
        self.codes, self.names, self.contents, self.start = codes, names, contents, start

    def __len__(self) -> int:
        return len(self.codes)

    def same(self, at: int, other: _Calls, other_at: int) -> bool:
        return bool(
            self.codes[at] == other.codes[other_at]
            and self.names[at] == other.names[other_at]
            and self.contents[at] == other.contents[other_at]
        )

    def part(self, start: int, end: int) -> _Calls:
        part = slice(start, end)
        return _Calls(self.codes[part], self.names[part], self.contents[part], self.start + start)

    def reversed(self) -> _Calls:
        return _Calls(self.codes[::-1], self.names[::-1], self.contents[::-1], 0)


def _solve(a: _Calls, b: _Calls) -> Iterator[tuple[int, int]]:
    if not len(a) or not len(b):
        return
    if len(a) == 1 or len(a) * len(b) <= SMALL:
        yield from _trace(a, b)
        return
    middle = len(a) // 2
    upper, lower = a.part(0, middle), a.part(middle, len(a))
    forward = _last_row(upper, b)
    backward = _last_row(lower.reversed(), b.reversed())[::-1]
    cut = int(np.argmax(forward + backward))
    yield from _solve(upper, b.part(0, cut))
    yield from _solve(lower, b.part(cut, len(b)))


def _rows(a: _Calls, b: _Calls) -> Iterator[IntArray]:
    """Rows 0, 1, … of the table of best weights; column j covers the first j calls of ``b``."""
    row = np.zeros(len(b) + 1, np.int64)
    yield row
    places: dict[int, IntArray] = {}
    for code, name, content in zip(a.codes.tolist(), a.names.tolist(), a.contents.tolist()):
        columns = places.get(code)
        if columns is None:
            columns = places[code] = np.flatnonzero(b.codes == code)
        if len(columns):
            best = row.copy()
            weights = row[columns] + PAIR + (b.names[columns] == name)
            weights += CONTENT * (b.contents[columns] == content)
            best[columns + 1] = np.maximum(best[columns + 1], weights)
            row = np.maximum.accumulate(best)
        yield row


def _last_row(a: _Calls, b: _Calls) -> IntArray:
    row = np.zeros(0, np.int64)
    for row in _rows(a, b):  # noqa: B007 - the last one is wanted
        pass
    return row


def _trace(a: _Calls, b: _Calls) -> list[tuple[int, int]]:
    table = list(_rows(a, b))
    found: list[tuple[int, int]] = []
    i, j = len(a), len(b)
    while i and j:
        best = table[i][j]
        if best == table[i - 1][j]:
            i -= 1
        elif best == table[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            found.append((a.start + i, b.start + j))
    return found[::-1]
