"""Metrics and policies over columns, which work on a single pair as on a batch or group of one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

from probe_core.model import Measurement, Measurements, Verdict
from probe_core.model.batches import RowBatch
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn, VerdictColumn
from probe_core.model.single import create_batch


class BatchMetricBase:
    """A metric over columns, which measures a single pair as a batch of one row."""

    @abstractmethod
    def measure_batch(self, batch: RowBatch) -> list[MeasurementColumn]:
        """Return a column for each column of the metric; rows with an obstacle may have any value."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the measurements of one pair."""
        return [column[0] for column in self.measure_batch(create_batch([pair.pair]))]


class BatchPolicyBase:
    """A policy over columns, which judges a single pair as a batch of one row."""

    @abstractmethod
    def judge_batch(self, batch: RowBatch) -> VerdictColumn:
        """Return the verdict on each row."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        return self.judge_batch(create_batch([pair.pair]))[0]


class GroupMetricBase:
    """A metric over groups of tensors, which measures a single pair as a group of one."""

    @abstractmethod
    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return a column for each column of the metric; all pairs are measurable."""

    def measure(self, pair: OpenPair) -> Sequence[Measurement]:
        """Return the measurements of one pair."""
        return [column[0] for column in self.measure_group(PairGroup([pair]))]


class GroupPolicyBase:
    """A policy over groups of tensors, which judges a single pair as a group of one."""

    @abstractmethod
    def judge_group(self, group: PairGroup, measurements: Mapping[str, MeasurementColumn]) -> VerdictColumn:
        """Return the verdict on each pair; all are measurable."""

    @abstractmethod
    def judge_unmeasured(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on a pair without tensors."""

    def judge(self, pair: OpenPair, measurements: Measurements) -> Verdict:
        """Return the verdict on one pair."""
        if not pair.measurable:
            return self.judge_unmeasured(pair, measurements)
        columns = {name: MeasurementColumn(1) for name in measurements}
        for name, column in columns.items():
            column[0] = measurements[name]
        return self.judge_group(PairGroup([pair]), columns)[0]
