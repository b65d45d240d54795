"""The pairs of a row order, op by op."""

from __future__ import annotations

from probe_core.matching.row_order import RowOrder
from probe_core.model import Pair


def pairs_by_op(order: RowOrder) -> list[tuple[str, list[Pair]]]:
    """Return the name and the pairs of each op."""
    batch = order.create_batch(0, len(order.ops))
    lines = [batch.lines(number) for number in range(len(batch.ops))]
    return [(op, batch.pairs(part.start, part.stop)) for op, part in zip(batch.ops, lines)]


def all_pairs(order: RowOrder) -> list[Pair]:
    """Return the pairs of all ops, in the order of the table."""
    return [pair for _, pairs in pairs_by_op(order) for pair in pairs]
