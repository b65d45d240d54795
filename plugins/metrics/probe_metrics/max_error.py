"""Largest absolute and largest relative error of two tensors."""

from __future__ import annotations

from probe_core.model.measure import PairGroup
from probe_core.model.results import MeasurementColumn
from probe_metrics.adapters import GroupMetricBase
from probe_metrics.kernel import MISALIGNED, build_column, compute_group_sums


class MaxError(GroupMetricBase):
    """Largest absolute error and largest relative error over all elements.

    Formulas, in float64, for a target N and a golden B of one shape: ``max(|N - B|)``, in the unit of the
    data, and ``max(|N - B| / |B|)``, a ratio without epsilon (docs/tables.md#relative-error); of complex data
    with moduli.

    Edge cases:
        * N equals B, both 0 (or -0.0) included: the relative error of the element is 0.
        * Only B is 0: the relative error of the element, and so the largest, is the number inf.
        * nan or inf, on both sides at the same places with the same sign: count as equal. At other places:
          both results are absent.
        * 0-d tensors are measured like any other; tensors without elements are not measured.

    Source: docs/tables.md#metrics, by the comparison guide of msprobe 8.3.
    """

    def measure_group(self, group: PairGroup) -> list[MeasurementColumn]:
        """Return the largest absolute and relative errors, or the reason why there are none."""
        sums = group.once(compute_group_sums)
        errors = sums.tally.max_absolute, sums.tally.max_relative
        return [build_column(error, (~sums.is_aligned, MISALIGNED)) for error in errors]
