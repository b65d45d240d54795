"""What the workers of a pool are asked to do: compare two record files, or measure a chunk of their ops.

Everything that goes in and comes out can be sent to another process. A worker keeps the last comparison open
between chunks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from functools import cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, NamedTuple

from probe_core import engine
from probe_core.model import Row
from probe_core.model.plan import Plan
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.specs import Pool
from probe_core.ranks.executors import busy
from probe_core.ranks.spread import in_order
from probe_core.store.layout import RunPair

if TYPE_CHECKING:
    from probe_core.flow.comparison import Comparison
    from probe_core.model.report import Report


CHUNKS = 4
"""Chunks that a comparison is cut into for each call that its pool takes at a time."""


class Chunk(NamedTuple):
    """The rows of some ops, what could not be read among their tensors, and notes for the report."""

    ops: list[tuple[str, list[Row]]]
    unreadable: list[str]
    unreadable_count: int
    notes: list[str]


@cache
def _manager() -> Manager:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # whoever asked us has said it already
        return Manager()


def compare_apart(plan: Plan, pair: RunPair, threads: int, manager: Manager | None = None) -> Report:
    """Compare two record files and write the result, on ``threads`` threads."""
    from probe_core.flow.pipeline import compare_quietly

    with busy():
        engine.use_threads(threads)
        return compare_quietly(plan, manager or _manager(), pair)


class _Open(threading.local):
    """The comparison that a thread of a worker was last asked to measure chunks of."""

    key: str = ""
    comparison: Comparison | None = None


_open = _Open()


def measure_chunk(plan: Plan, pair: RunPair, start: int, stop: int) -> Chunk:
    """The rows of the target's ops from ``start`` to before ``stop``."""
    with busy():
        engine.use_threads(1)
        comparison = _opened(plan, pair)
        ops = list(comparison.ops(start, stop))
        chunk = Chunk(ops, list(comparison.unreadable), comparison.unreadable_count, list(comparison.notes))
        comparison.unreadable.clear()
        comparison.unreadable_count = 0
    return chunk


def measured_by(pool: Pool, pair: RunPair, comparison: Comparison) -> Iterator[tuple[str, list[Row]]]:
    """The rows of each op of a comparison as the workers of ``pool`` make them, chunk by chunk."""
    calls = [(comparison.plan, pair, *chunk) for chunk in comparison.chunks(pool.size * CHUNKS)]
    for chunk in in_order(pool, measure_chunk, calls):
        comparison.take_unreadable(chunk.unreadable, chunk.unreadable_count)
        comparison.take_notes(chunk.notes)
        yield from chunk.ops


def _opened(plan: Plan, pair: RunPair) -> Comparison:
    """The comparison of two record files as the plan says; the last one stays open."""
    from probe_core.flow.comparison import Comparison

    key = repr((plan, pair))
    if _open.comparison is None or _open.key != key:
        if _open.comparison is not None:
            _open.comparison.close()
        _open.comparison = None
        _open.comparison, _open.key = Comparison(plan, _manager(), pair.target, pair.golden), key
        Finalize(None, _open.comparison.close, exitpriority=1)
    return _open.comparison
