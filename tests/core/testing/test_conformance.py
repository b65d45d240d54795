"""The kit for metrics: what it says of a metric at fault is what a comparison says."""

from __future__ import annotations

from typing import Any

import pytest

from probe_core.model import Measurement
from probe_core.plugins.specs import MetricSpec
from probe_core.testing import MetricConformance


@pytest.mark.parametrize(
    "returned, says",
    [
        (0.5, "measure must return a list of Measurement, not float"),
        ([0.5], "measure must return a list of Measurement, not of float"),
        ([Measurement(1.0)] * 2, "measure must return 1 Measurement, not 2"),
    ],
)
def test_a_metric_at_fault(returned: Any, says: str) -> None:
    class Faulty:
        def measure(self, pair: Any) -> Any:
            return returned

    class Kit(MetricConformance):
        spec = MetricSpec("faulty", "a metric", Faulty, ("Faulty",))

    with pytest.raises(AssertionError) as caught:
        Kit().test_edge_cases_give_a_measurement_per_column()
    assert str(caught.value).startswith(f"{says} (at the edge case ")
