"""Differences of the recorded statistics."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np

from probe_core.model import Measurement, Statistic
from probe_core.model.batches import PairSide, RowBatch
from probe_core.model.columns import BIG_INTEGER, FLOAT, INTEGER, Array
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import BatchMetricBase


class StatisticsDifference(BatchMetricBase):
    """Difference and relative error of the recorded maximum, minimum, mean and L2 norm.

    Formulas, in float64: ``N - B``, in the unit of the data, and ``|N - B| / |B|``, a ratio; N is a statistic
    of the target, B the same of the golden. No data are read; shapes play no part.

    Edge cases:
        * Either is not a number (null, a text, a boolean), as for tensors without elements: both absent
          (``N/A``).
        * The difference is nan, because of nan or of inf - inf: both absent (``Nan``).
        * inf on one side: the difference is inf or -inf; inf over inf is absent (``Nan``).
        * B is 0 (or -0.0): the relative error is absent (``N/A``).
        * An integer beyond float64 counts as inf.

    Source: docs/tables.md#statistics-result, by the comparison guide of msprobe 8.3.
    """

    def measure_batch(self, batch: RowBatch) -> list[MeasurementColumn]:
        """Return four differences (max, min, mean, norm), then four relative errors in the same order."""
        numbers, references = (side.column("numbers") for side in (batch.target, batch.golden))
        are_numbers = are_number(batch.target) & are_number(batch.golden)
        with np.errstate(all="ignore"):
            differences = numbers - references
            relatives = abs(differences / references)
        is_zero = references == 0
        reasons = np.select([~are_numbers, differences != differences], [1, 2])
        columns = [_build_columns(differences, reasons)]
        reasons = np.select([reasons > 0, is_zero, relatives != relatives], [reasons, 3, 2])
        columns.append(_build_columns(relatives, reasons))
        return [column for four in columns for column in four]


def _build_columns(numbers: Array, reasons: Array) -> list[MeasurementColumn]:
    """Return the four columns of numbers, with codes of reasons for those that do not exist."""
    columns = []
    for place in range(4):
        column = MeasurementColumn(len(numbers), (NO_NUMBER, NAN, ZERO_GOLDEN))
        column.numbers, column.codes = numbers[:, place], reasons[:, place].astype(np.int32)
        columns.append(column)
    return columns


NO_NUMBER = Measurement.absent("no_number")
NAN = Measurement.absent("nan")
ZERO_GOLDEN = Measurement.absent("zero_golden")


_IS_NUMBER = np.array([kind in (FLOAT, INTEGER, BIG_INTEGER) for kind in range(BIG_INTEGER + 1)])


def are_number(side: PairSide) -> Array:
    """Return True for statistics that are numbers, nan and inf included, of shape (rows, 4)."""
    are_number: Array = _IS_NUMBER[side.column("types")]
    return are_number


def is_number(value: Statistic) -> TypeGuard[float]:
    """Return True for a number, including nan and inf; booleans are not numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
