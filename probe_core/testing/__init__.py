"""The kit for plugin authors: a conformance class for metrics, edge arrays, pairs, a manager.

Subclass ``MetricConformance`` in a test module and pytest runs its checks on your metric::

    from probe_core.testing import MetricConformance
    from my_package.hooks import probe_metrics

    class TestChebyshev(MetricConformance):
        spec = probe_metrics()[0]
"""

from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.conformance import MetricConformance
from probe_core.testing.manager import manager_of
from probe_core.testing.pairs import pair_of, pair_of_values

__all__ = ["EDGES", "MetricConformance", "edge_pairs", "manager_of", "pair_of", "pair_of_values"]
