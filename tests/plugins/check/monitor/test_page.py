"""The curves of the monitor's page."""

import math

from probe_check.monitor.page import _compute_curve
from probe_check.monitor.run_reader import Series


def _series(micro_step, norms):
    return Series(0, None, 0, "w", micro_step, 0, list(range(len(norms))), {"norm": norms})


def test_curve_has_the_largest_magnitude_of_the_micro_batches():
    assert _compute_curve([_series(0, [1.0, 4.0]), _series(1, [2.0, 3.0])]) == [(0, 2.0), (1, 4.0)]


def test_nan_of_a_micro_batch_stays_in_the_curve():
    for order in ([math.nan, 1.0, 2.0], [1.0, math.nan, 2.0], [1.0, 2.0, math.nan]):
        ((_, value),) = _compute_curve([_series(i, [norm]) for i, norm in enumerate(order)])
        assert math.isnan(value)
