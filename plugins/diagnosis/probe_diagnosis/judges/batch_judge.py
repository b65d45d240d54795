"""Judges over columns, which judge a single op as a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from probe_core.model import Op, Row, Ruling
from probe_core.model.batches import RowBatch
from probe_core.model.single import create_batch

Judge = Callable[[Op, Sequence[Row]], Mapping[int, Ruling]]
"""Function that returns the rulings on an op by the position of the row."""


def judge_each(judge: Judge, batch: RowBatch, numbers: Iterable[int]) -> dict[int, Ruling]:
    """Apply a judge of single ops to the ops ``numbers`` of a batch, and return its rulings by row."""
    return {
        batch.lines(number)[place]: ruling
        for number in numbers
        for place, ruling in judge(batch.op(number), batch.rows(number)).items()
    }


class BatchJudge:
    """A judge over columns, which judges a single op as a batch."""

    @abstractmethod
    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by row."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by the row's position in ``rows``."""
        return self.judge_batch(create_batch([row.pair for row in rows], op, [row.verdict for row in rows]))
