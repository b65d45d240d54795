"""Test kit for plugin authors: conformance tests, arrays, pairs, runs, and a plugin manager.

Subclass one of the classes in a test module, and pytest runs its tests on your contribution::

    from probe_core.testing import MetricConformance
    from my_package.hooks import probe_metrics

    class TestChebyshev(MetricConformance):
        spec = probe_metrics()[0]
"""

from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.conformance import MetricConformance
from probe_core.testing.judges import JudgeConformance
from probe_core.testing.manager import manager_of
from probe_core.testing.matchers import MatcherConformance
from probe_core.testing.pairs import pair_of, pair_of_values
from probe_core.testing.policies import PolicyConformance
from probe_core.testing.readers import ReaderConformance
from probe_core.testing.reporters import ReporterConformance
from probe_core.testing.runs import ArrayRun
from probe_core.testing.views import ViewConformance

__all__ = [
    "EDGES",
    "ArrayRun",
    "JudgeConformance",
    "MatcherConformance",
    "MetricConformance",
    "PolicyConformance",
    "ReaderConformance",
    "ReporterConformance",
    "ViewConformance",
    "edge_pairs",
    "manager_of",
    "pair_of",
    "pair_of_values",
]
