"""Bitwise equality of two tensors."""

from __future__ import annotations

from probe_core.model import Measurement
from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import build_column, compute_group_sums


class Equal(GroupMetricBase):
    """Equality of dtype and of every bit.

    The result is True or False, for tensors of one shape. The byte order in which they are stored does not
    matter.

    Edge cases:
        * A nan equals a nan of the same bits and no other; inf equals inf of the same sign.
        * 0.0 does not equal -0.0.
        * Tensors of different dtypes are not equal, even if their values are.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, a metric of probe's own.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return True for pairs whose dtype and bits agree, False for others."""
        equal = group.once(compute_group_sums).tally.equal
        return [build_column(equal, (equal == 1, Measurement(True)), (equal == 0, Measurement(False)))]
