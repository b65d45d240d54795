"""Gradients that sums cancelled: what is left is rounding, and its cosine says nothing.

A bias in front of a normalisation has no influence, and its gradient is a sum of large numbers that comes to
nothing. Two runs round it otherwise, so its cosine is as good as random, however right both are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod, sqrt

from probe_core.model import How, Level, Op, Reason, Row, Ruling, Side, Slot
from probe_core.store.names import is_gradient

CANCELLED = Reason("evidence", "what is left of a sum that cancelled")


class Rounding:
    """Passes gradients that are rounding, whatever the table's label says.

    A failing row comes with ``drift`` where its cosine alone fails. It is rounding where it is a sum, smaller
    than the largest tensor of its op, and differs by no more than rounding explains of the largest scale.
    Where calls do not line up, tensors without a partner count, too.
    """

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """The failing rows of an op that may be rounding; those that are not lose their drift alone."""
        drifts = [row.verdict.drift for row in rows]
        doubtful = [n for n, row in enumerate(rows) if drifts[n] and row.verdict.level is Level.ERROR]
        if not doubtful:
            return {}
        sizes = [_size(row) for row in rows]
        is_backward = is_gradient(op.key) or "backward" in op.key.split(".")
        rulings: dict[int, Ruling] = {}
        for place in doubtful:
            row, drift, size = rows[place], drifts[place], sizes[place]
            assert drift is not None
            scale = max((_scale(other) for other, more in zip(rows, sizes) if more > size), default=0.0)
            verdict = row.verdict._replace(drift=None)
            is_given = row.pair.side in (Side.OUTPUT, Side.PARAMETERS_GRAD)
            if is_backward and is_given and drift.relative_to(scale) <= drift.noise:
                verdict = verdict._replace(level=Level.PASS, failed=False)
            rulings[place] = Ruling(verdict, CANCELLED)
        return rulings


def _scale(row: Row) -> float:
    """The root mean square of the golden; of a value without partner its own, by its recorded norm."""
    if row.verdict.drift is not None:
        return row.verdict.drift.scale
    slot = row.pair.target
    if slot is None or row.pair.matched or row.pair.how is not How.REGION:
        return 0.0
    norm, size = slot.value.statistics.norm, _size(row)
    return norm / sqrt(size) if isinstance(norm, float) and isfinite(norm) and size else 0.0


def _size(row: Row) -> int:
    slot: Slot | None = row.pair.target or row.pair.golden
    assert slot is not None
    return prod(slot.value.shape or ())
