"""Functions for the workers of a pool: compare two record files, or measure a chunk of their ops.

Arguments and results can be sent to another process. A worker keeps its last comparison open between chunks.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from functools import cache
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING, NamedTuple

from probe_core import engine
from probe_core.model.batches import RowBatch
from probe_core.model.plan import Plan
from probe_core.model.results import BatchResults
from probe_core.plugins.manager import Manager, PluginWarning
from probe_core.plugins.protocols import PairResult
from probe_core.store.layout import RunPair
from probe_ranks.executors import allow_interrupts
from probe_ranks.specs import Pool
from probe_ranks.spread import iterate_in_order

if TYPE_CHECKING:
    from probe_core.flow.comparison import RunComparison


CHUNKS_PER_WORKER = 4
"""Number of chunks of a comparison for each worker."""


class Chunk(NamedTuple):
    """Results of batches with their ranges of ops, errors of tensor files, and notes for the report."""

    batches: list[tuple[int, int, BatchResults]]
    unreadable: list[str]
    unreadable_count: int
    notes: list[str]


@cache
def _get_manager() -> Manager:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the parent process has warned already
        return Manager()


def compare_in_worker(plan: Plan, pair: RunPair, threads: int, manager: Manager | None = None) -> PairResult:
    """Compare two record files and write the result, on ``threads`` threads."""
    from probe_core.flow.pipeline import compare_pair

    with allow_interrupts():
        engine.use_threads(threads)
        return compare_pair(plan, manager or _get_manager(), pair)


class _OpenComparison(threading.local):
    """The last comparison of each worker thread."""

    key: str = ""
    comparison: RunComparison | None = None


_open = _OpenComparison()


def measure_chunk(plan: Plan, pair: RunPair, start: int, stop: int) -> Chunk:
    """Measure the rows of the target's ops from ``start`` up to ``stop``."""
    with allow_interrupts():
        engine.use_threads(1)
        comparison = _open_comparison(plan, pair)
        batches = [
            (batch.first_op, batch.first_op + len(batch.ops), batch.results)
            for batch in comparison.batches(pair.rank, start, stop)
        ]
        chunk = Chunk(batches, list(comparison.unreadable), comparison.unreadable_count, list(comparison.notes))
        comparison.unreadable.clear()
        comparison.unreadable_count = 0
    return chunk


def measure_in_pool(pool: Pool, pair: RunPair, comparison: RunComparison) -> Iterator[RowBatch]:
    """Yield the batches of a comparison, measured chunk by chunk by the workers of ``pool``."""
    calls = [
        (comparison.opened.plan, pair, *chunk) for chunk in comparison.runs.split_ops(pool.size * CHUNKS_PER_WORKER)
    ]
    for chunk in iterate_in_order(pool, measure_chunk, calls):
        comparison.add_unreadable(chunk.unreadable, chunk.unreadable_count)
        comparison.add_notes(chunk.notes)
        for first, last, results in chunk.batches:
            batch = comparison.runs.create_batch(first, last, pair.rank)
            batch.results = results
            yield batch


def _open_comparison(plan: Plan, pair: RunPair) -> RunComparison:
    """Return the comparison of two record files; the last one stays open."""
    from probe_core.flow.comparison import RunComparison

    key = repr((plan, pair))
    if _open.comparison is None or _open.key != key:
        if _open.comparison is not None:
            _open.comparison.close()
        _open.comparison = None
        _open.comparison, _open.key = RunComparison.open(plan, _get_manager(), pair.target, pair.golden), key
        Finalize(None, _open.comparison.close, exitpriority=1)
    return _open.comparison
