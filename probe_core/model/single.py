"""Batches made of single pairs, for metrics, policies and judges that work on batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from probe_core.model.batches import ABSENT, HOWS, PairSide, RowBatch
from probe_core.model.columns import columns_of
from probe_core.model.results import MeasurementColumn, VerdictColumn
from probe_core.model.rows import Measurement, Measurements, Op, Pair, Row, Ruling, Verdict
from probe_core.model.values import Kind, Record, Side, Slot, Value

if TYPE_CHECKING:
    from probe_core.model.measure import OpenPair

NO_SLOT = Slot("", Side.INPUT, "", Value(Kind.NULL, "None", "None"))
"""The value of a side without values, to which no row refers."""


def batch_of(pairs: Sequence[Pair], op: Op | None = None, verdicts: Sequence[Verdict] = ()) -> RowBatch:
    """Return a batch of one op with the given pairs, and with verdicts if there are any."""
    described = op or Op("")
    sides: list[PairSide] = []
    for slots in ([pair.target for pair in pairs], [pair.golden for pair in pairs]):
        present = tuple(slot for slot in slots if slot is not None)
        count = iter(range(len(present)))
        lines = np.array([ABSENT if slot is None else next(count) for slot in slots], int)
        # a run without values has a null value, to which no line refers
        sides.append(PairSide(columns_of([Record(0, described.key, present or (NO_SLOT,))]), lines))
    how = np.array([HOWS.index(pair.how) for pair in pairs], int)
    batch = RowBatch(
        0, [described.key], np.array([0, len(pairs)]), sides[0], sides[1], how, lambda key: described
    )
    batch.results.verdicts = VerdictColumn([], np.zeros(len(pairs), np.int32))
    for line, verdict in enumerate(verdicts):
        batch.verdicts[line] = verdict
    return batch


class BatchMetric:
    """A metric over columns, which measures a single pair as a batch of one row."""

    @abstractmethod
    def measure_batch(self, batch: RowBatch) -> list[MeasurementColumn]:
        """Return a column for each column of the metric; rows with an obstacle may hold anything."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the measurements of one pair."""
        return [column[0] for column in self.measure_batch(batch_of([pair.pair]))]


class BatchJudge:
    """A judge over columns, which judges a single op as a batch."""

    @abstractmethod
    def judge_batch(self, batch: RowBatch) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by row."""

    def judge(self, op: Op, rows: Sequence[Row]) -> Mapping[int, Ruling]:
        """Return the verdicts to change, by the row's position in ``rows``."""
        return self.judge_batch(batch_of([row.pair for row in rows], op, [row.verdict for row in rows]))


class BatchPolicy:
    """A policy over columns, which judges a single pair as a batch of one row."""

    @abstractmethod
    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdict on each row."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        return self.judge_batch(batch_of([pair.pair]))[0]
