"""Judges over columns, which judge a single op as a batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from probe_core.model import Op, Row, Ruling
from probe_core.model.batches import RowBatch
from probe_core.model.single import batch_of


class BatchJudge:
    """A judge over columns, which judges a single op as a batch."""

    @abstractmethod
    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by row."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by the row's position in ``rows``."""
        return self.judge_batch(batch_of([row.pair for row in rows], op, [row.verdict for row in rows]))
