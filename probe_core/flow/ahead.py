"""Parallel reading and measuring of the next pairs while rows are judged and written.

Processors share the work, and a slow disk is kept busy. The order of the pairs does not change, and at most
two batches are open.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from probe_core import engine
from probe_core.files.mapped import owner_of
from probe_core.model.measure import OpenPair

T = TypeVar("T")
Array = np.ndarray[Any, Any]
Ahead = Callable[[Sequence[OpenPair]], None]
Batch = list[tuple[T, "OpenPair | None"]]

LARGE = 512 << 10
"""Smallest size in bytes of a pair's tensors that is worth another thread."""
PAIRS, BYTES = 24, 32 << 20
"""Limits of a batch: pairs, and bytes of their tensors. Mapped files stay open: 96 in two batches, and some
systems allow 256 in all."""


def opened_ahead(
    pairs: Iterable[tuple[T, OpenPair | None]], functions: Sequence[Ahead]
) -> Iterator[tuple[T, OpenPair | None]]:
    """Yield labelled pairs in order, and call ``functions`` with the large pairs of each batch beforehand.

    A label without a pair passes through. With a single thread, nothing is done ahead.
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
        begun.exception()  # wait; a failure is raised again when the metric measures the pair
    return batch


def _call(functions: Sequence[Ahead], pairs: Sequence[OpenPair]) -> None:
    for pair in pairs:
        announce(pair.target)
        announce(pair.golden)
    for function in functions:
        function(pairs)


def announce(array: Array) -> None:
    """Ask the system to read the mapped file behind ``array``, if there is one."""
    owner = owner_of(array)
    if not isinstance(owner, mmap.mmap) or not hasattr(owner, "madvise"):
        return
    first = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = max(0, first - first % mmap.PAGESIZE)
    owner.madvise(mmap.MADV_WILLNEED, start, min(first + array.nbytes, len(owner)) - start)
