"""Pairs opened ahead of their turn, the passes over large ones done by then on other threads.

While rows are judged and written, the tensors of the next ones are read and measured: processors share
the work, and a slow disk is kept busy. The order of the pairs does not change, and two batches are open
at most.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from probe_core import engine
from probe_core.model.measure import OpenPair

T = TypeVar("T")
Array = np.ndarray[Any, Any]
Ahead = Callable[[Sequence[OpenPair]], None]
Batch = list[tuple[T, "OpenPair | None"]]

LARGE = 512 << 10
"""Bytes of a pair's two tensors from which on it is worth handing to another thread."""
PAIRS, BYTES = 24, 32 << 20
"""How many pairs, and how many bytes of their tensors, are a batch. A mapped file stays open: two batches
hold 96, where some systems allow 256."""


def opened_ahead(
    pairs: Iterable[tuple[T, OpenPair | None]], functions: Sequence[Ahead]
) -> Iterator[tuple[T, OpenPair | None]]:
    """The pairs in their order; before its turn, ``functions`` are called with what is large of a batch.

    A label may come without a pair, and passes through. Where there is but one thread to compute on, nothing
    is done ahead.
    """
    if engine.threads() == 1:
        yield from pairs
        return
    before: tuple[Batch[T], Future[None] | None] = [], None
    with ThreadPoolExecutor(1, "probe-ahead") as thread:
        for batch in _batches(pairs):
            large = [pair for _, pair in batch if pair is not None and pair.nbytes >= LARGE]
            begun = thread.submit(_call, functions, large) if large else None
            yield from _finished(*before)
            before = batch, begun
        yield from _finished(*before)


def _batches(pairs: Iterable[tuple[T, OpenPair | None]]) -> Iterator[Batch[T]]:
    batch: Batch[T] = []
    size = 0
    for label, pair in pairs:
        batch.append((label, pair))
        size += 0 if pair is None else pair.nbytes
        if len(batch) == PAIRS or size >= BYTES:
            yield batch
            batch, size = [], 0
    yield batch


def _finished(batch: Batch[T], begun: Future[None] | None) -> Batch[T]:
    if begun is not None:
        begun.exception()  # whoever asks for what failed meets the failure again, where it is said
    return batch


def _call(functions: Sequence[Ahead], pairs: Sequence[OpenPair]) -> None:
    for pair in pairs:
        announce(pair.target)
        announce(pair.golden)
    for function in functions:
        function(pairs)


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
