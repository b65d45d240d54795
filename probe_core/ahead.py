"""Pairs opened a little ahead of their turn, so that the disk reads the next while one is measured."""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import numpy as np

from probe_core.measure import OpenPair

T = TypeVar("T")
Array = np.ndarray[Any, Any]

LARGE = 1 << 20
"""Bytes from which on reading a mapped tensor is worth announcing; the system reads less ahead by itself."""
PAIRS, BYTES = 16, 64 << 20
"""How many pairs, and how many bytes of their tensors, are opened ahead at most."""


def opened_ahead(pairs: Iterable[tuple[T, OpenPair | None]]) -> Iterator[tuple[T, OpenPair | None]]:
    """The pairs in their order; what is large of them is announced to the system before its turn.

    A label may come without a pair, and passes through.
    """
    waiting: deque[tuple[T, OpenPair | None, int]] = deque()
    held = 0
    for label, pair in pairs:
        size = 0
        if pair is not None and pair.measurable:
            for array in (pair.target, pair.golden):
                size += array.nbytes
                if array.nbytes >= LARGE:
                    announce(array)
        waiting.append((label, pair, size))
        held += size
        while len(waiting) > PAIRS or held > BYTES:
            label, pair, size = waiting.popleft()
            held -= size
            yield label, pair
    for label, pair, _ in waiting:
        yield label, pair


def announce(array: Array) -> None:
    """Ask the system to read the mapped file behind ``array``; what is not mapped is there already."""
    owner: Any = array
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    if not isinstance(owner, mmap.mmap) or not hasattr(owner, "madvise"):
        return
    first = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = max(0, first - first % mmap.PAGESIZE)
    owner.madvise(mmap.MADV_WILLNEED, start, min(first + array.nbytes, len(owner)) - start)
