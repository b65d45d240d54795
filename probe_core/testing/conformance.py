"""Conformance tests for metrics, as a class to subclass."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from probe_core.model import Measurement
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn
from probe_core.model.single import create_batch
from probe_core.plugins.manager import Manager
from probe_core.plugins.protocols import Metric
from probe_core.plugins.specs import MetricSpec, Needs
from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.pairs import pair_of


class MetricConformance:
    """Tests for any metric; set ``spec`` in a subclass, and pytest collects them."""

    spec: ClassVar[MetricSpec]

    def metric(self) -> Metric:
        """Return a new metric from the spec's factory."""
        metric: Metric = self.spec.make()
        return metric

    def measured(self, target: np.ndarray[Any, Any], golden: np.ndarray[Any, Any]) -> list[Measurement]:
        """Return the measurements of one pair of arrays."""
        measured: Any = self.metric().measure(pair_of(target, golden))
        kind, count = type(measured).__name__, len(self.spec.columns)
        assert isinstance(measured, Sequence), f"measure must return a list of Measurement, not {kind}"
        for item in measured:
            kind = type(item).__name__
            assert isinstance(item, Measurement), f"measure must return a list of Measurement, not of {kind}"
        assert len(measured) == count, f"measure must return {count} Measurement, not {len(measured)}"
        return list(measured)

    def test_spec_lists_its_columns(self) -> None:
        """Check that the spec has a name, a summary, and distinct columns."""
        assert self.spec.name.isidentifier()
        assert self.spec.summary
        assert self.spec.columns and all(isinstance(column, str) for column in self.spec.columns)
        assert len(set(self.spec.columns)) == len(self.spec.columns)
        assert self.spec.needs in Needs

    def test_edge_cases_give_a_measurement_per_column(self) -> None:
        """Check for one measurement per column, without exception or warning, for all edge cases."""
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for name, target, golden in edge_pairs():
                try:
                    self.measured(target, golden)
                except AssertionError as error:
                    raise AssertionError(f"{error} (at the edge case {name})") from None

    def test_values_are_numbers_or_reasons(self) -> None:
        """Check that each measurement is a value other than nan, or a reason with a text."""
        texts = Manager().merge_mappings("probe_reasons", dict)
        for name, target, golden in edge_pairs():
            for item in self.measured(target, golden):
                assert (item.value is None) != (item.reason is None), name
                assert not (isinstance(item.value, float) and math.isnan(item.value)), name
                if item.reason is not None:
                    assert item.reason.code in texts or item.reason.detail, name

    def test_inputs_are_unchanged(self) -> None:
        """Check that measuring does not write to the tensors."""
        for name, array in EDGES.items():
            target, golden = array.copy(), array.copy()
            self.measured(target, golden)
            assert target.tobytes() == array.tobytes() == golden.tobytes(), name

    def test_results_are_repeatable(self) -> None:
        """Check that measurements do not depend on earlier pairs."""
        metric = self.metric()
        pairs = [pair_of(target, golden) for _, target, golden in edge_pairs()]
        first = [list(metric.measure(pair)) for pair in pairs]
        again = [list(metric.measure(pair)) for pair in reversed(pairs)]
        assert first == again[::-1]

    def test_groups_and_batches_equal_pairs(self) -> None:
        """Check that the measurements of a pair do not depend on the other pairs of its group or batch."""
        metric: Any = self.metric()
        pairs = [pair_of(target, golden) for _, target, golden in edge_pairs()]
        results: list[tuple[list[OpenPair], Sequence[MeasurementColumn]]] = []
        if hasattr(metric, "measure_group"):
            group = PairGroup(pairs).measurable
            results.append(([*group], metric.measure_group(group)))
        if hasattr(metric, "measure_batch"):
            usable = [pair for pair in pairs if pair.recorded_obstacle is None]
            results.append((usable, metric.measure_batch(create_batch([pair.pair for pair in usable]))))
        for members, columns in results:
            for place, pair in enumerate(members):
                assert [column[place] for column in columns] == [*metric.measure(pair)], pair.pair

    def test_memory_layout_is_irrelevant(self) -> None:
        """Check that a transposed or strided tensor measures like its contiguous copy."""
        for name in ("strided", "transposed"):
            array = EDGES[name]
            golden = (array + np.float32(0.5)).astype(array.dtype)
            assert self.measured(array, golden) == self.measured(array.copy(order="C"), golden), name
