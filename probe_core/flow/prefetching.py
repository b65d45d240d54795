"""Parallel measuring of the next groups of pairs while rows are judged and written.

Processors share the work, and a slow disk is kept busy. The order of the pairs does not change, and at most
two groups are open.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from probe_core import engine
from probe_core.files.mapped import MappedFile, find_memory_owner
from probe_core.model.columns import Array
from probe_core.model.measure import OpenPair, PairGroup

T = TypeVar("T")
GroupFunction = Callable[[PairGroup], None]

MIN_PARALLEL_BYTES = 512 << 10
"""Smallest size in bytes of a group's tensors that is worth another thread."""
MIN_ANNOUNCED_BYTES = 64 << 10
"""Smallest size in bytes of an array that is announced; the system reads as much ahead by itself."""
MAX_MAPPED_FILES = 48
"""Largest number of mapped files of a group. Two groups are open at once, and some systems allow 256 open files."""
MAX_GROUP_BYTES = 32 << 20
"""Largest size in bytes of the tensors of a group."""


def group_pairs(pairs: Iterable[OpenPair]) -> Iterator[PairGroup]:
    """Yield pairs in groups, in order; without pairs, an empty group."""
    group: list[OpenPair] = []
    mapped: set[MappedFile | None] = set()
    size, has_yielded = 0, False
    for pair in pairs:
        group.append(pair)
        size += pair.nbytes
        mapped.update(pair.mappings)
        if len(mapped - {None}) >= MAX_MAPPED_FILES or size >= MAX_GROUP_BYTES:
            yield PairGroup(group)
            group, mapped, size, has_yielded = [], set(), 0, True
    if group or not has_yielded:
        yield PairGroup(group)


def measure_ahead(
    groups: Iterable[tuple[T, PairGroup]], functions: Sequence[GroupFunction]
) -> Iterator[tuple[T, PairGroup]]:
    """Yield labelled groups in order, after another thread called ``functions`` with each large group.

    A process with a single thread does not call them.
    """
    if engine.count_threads() == 1:
        yield from groups
        return
    previous: tuple[tuple[T, PairGroup], Future[None] | None] | None = None
    with ThreadPoolExecutor(1, "probe-ahead") as thread:
        for item in groups:
            measurable = item[1].measurable
            is_large = sum(pair.nbytes for pair in measurable) >= MIN_PARALLEL_BYTES
            future = thread.submit(_measure_group, functions, measurable) if is_large else None
            if previous is not None:
                yield _await_future(*previous)
            previous = item, future
        if previous is not None:
            yield _await_future(*previous)


def _await_future(item: tuple[T, PairGroup], future: Future[None] | None) -> tuple[T, PairGroup]:
    if future is not None:
        future.exception()  # wait; a failure is raised again when the metric measures the group
    return item


def _measure_group(functions: Sequence[GroupFunction], group: PairGroup) -> None:
    for pair in group:
        announce(pair.target)
        announce(pair.golden)
    for function in functions:
        function(group)


def announce(array: Array) -> None:
    """Ask the system to read the mapped file behind a large array, if there is one."""
    owner = find_memory_owner(array) if array.nbytes >= MIN_ANNOUNCED_BYTES else None
    if not isinstance(owner, mmap.mmap) or not hasattr(owner, "madvise"):
        return
    first = array.ctypes.data - np.frombuffer(owner, np.uint8).ctypes.data
    start = max(0, first - first % mmap.PAGESIZE)
    owner.madvise(mmap.MADV_WILLNEED, start, min(first + array.nbytes, len(owner)) - start)
