"""Equality of the recorded checksums."""

from __future__ import annotations

import numpy as np

from probe_core.model import Measurement
from probe_core.model.batches import RowBatch
from probe_core.model.columns import Array
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import BatchMetricBase


class Checksum(BatchMetricBase):
    """Equality of the checksums in both records; no data are read.

    The result is True or False. Shape, values and dtype play no part: nan, inf, -0.0, zeros and tensors
    without elements are what their checksums are. Two absent checksums count as equal, one absent checksum
    does not.

    Source: docs/tables.md#checksum-result, by the comparison guide of msprobe 8.3.
    """

    def measure_batch(self, batch: RowBatch) -> list[MeasurementColumn]:
        """Return True for rows with equal checksums."""
        column = MeasurementColumn(len(batch), (Measurement(False), Measurement(True)))
        column.codes = np.where(have_equal_checksums(batch), 2, 1).astype(np.int32)
        return [column]


def have_equal_checksums(batch: RowBatch) -> Array:
    """Return True for matched rows with equal checksums on record, or with none on both sides."""
    checksums = (side.checksums() for side in (batch.target, batch.golden))
    equal: Array = np.array([first == second for first, second in zip(*checksums)], bool) & batch.is_matched
    return equal
