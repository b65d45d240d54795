"""Conformance tests for policies, as a class to subclass."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from probe_core.model import Level, Measurement, Measurements, Mode, Reason, Verdict
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.results import MeasurementColumn
from probe_core.plugins.protocols import Policy
from probe_core.plugins.specs import MetricSpec, Needs, PolicySpec
from probe_core.testing.arrays import EDGES, edge_pairs
from probe_core.testing.pairs import pair_of, pair_of_values, value_of


class MeasuredCases:
    """Edge cases, measured with ``metrics``, the metrics that the policy or highlighter reads."""

    metrics: ClassVar[tuple[MetricSpec, ...]]

    def measure(self, pair: OpenPair) -> Measurements:
        """Return the measurements of a pair, as a comparison measures them."""
        measurements: dict[str, Measurement] = {}
        for spec in self.metrics:
            obstacle = pair.obstacle if spec.needs is Needs.TENSOR else pair.recorded_obstacle
            measured = (
                [Measurement(None, obstacle)] * len(spec.columns) if obstacle is not None else spec.make().measure(pair)
            )
            names = (f"{spec.name}.{column}" for column in spec.columns)
            measurements.update(zip(names, measured))
        return MappingProxyType(measurements)

    def create_failed_measurements(self) -> Measurements:
        """Return the measurements of a pair for which every metric failed."""
        error = Measurement.failed(ValueError("no"), "mine")
        names = [f"{spec.name}.{column}" for spec in self.metrics for column in spec.columns]
        return MappingProxyType(dict.fromkeys(names, error))

    def cases(self) -> Iterator[tuple[str, OpenPair, Measurements]]:
        """Yield measured edge cases, pairs without a partner, and a pair for which every metric failed."""
        value = value_of(EDGES["plain"])
        pairs = [(name, pair_of(target, golden)) for name, target, golden in edge_pairs()]
        pairs.append(("other shapes", pair_of(np.zeros(2), np.zeros(3))))
        pairs.append(("no golden", pair_of_values(value, None, Mode.TENSOR)))
        pairs.append(("no target", pair_of_values(None, value, Mode.TENSOR)))
        for name, pair in pairs:
            yield name, pair, self.measure(pair)
        yield "failed", pair_of(EDGES["plain"], EDGES["plain"]), self.create_failed_measurements()


class PolicyConformance(MeasuredCases):
    """Tests for any policy; set ``spec``, and set ``metrics`` to the metrics that the policy reads."""

    spec: ClassVar[PolicySpec]

    def policy(self) -> Policy:
        """Return a new policy from the spec's factory."""
        policy: Policy = self.spec.make()
        return policy

    def test_spec_lists_its_metrics(self) -> None:
        """Check for a name, a summary, a standard, and the specs of all metrics."""
        assert self.spec.name and self.spec.summary and self.spec.standard
        assert set(self.spec.metrics) <= {metric.name for metric in self.metrics}

    def test_every_pair_gets_a_verdict(self) -> None:
        """Check that every pair gets a level, a label and reasons."""
        for name, pair, measurements in self.cases():
            verdict = self.policy().judge(pair, measurements)
            assert isinstance(verdict, Verdict), name
            assert verdict.level in Level and isinstance(verdict.label, str), name
            assert all(isinstance(reason, Reason) for reason in verdict.reasons), name

    def test_equal_tensors_are_no_error(self) -> None:
        """Check that equal and finite tensors do not fail."""
        pair = pair_of(EDGES["plain"], EDGES["plain"].copy())
        verdict = self.policy().judge(pair, self.measure(pair))
        assert verdict.level is not Level.ERROR and not verdict.failed

    def test_verdicts_are_repeatable(self) -> None:
        """Check that verdicts do not depend on earlier pairs."""
        policy = self.policy()
        cases = [(pair, measurements) for _, pair, measurements in self.cases()]
        first = [policy.judge(*case) for case in cases]
        assert first == [policy.judge(*case) for case in reversed(cases)][::-1]

    def test_groups_equal_pairs(self) -> None:
        """Check that the verdict of a pair of tensors does not depend on the other pairs of its group."""
        policy: Any = self.policy()
        if not hasattr(policy, "judge_group"):
            return
        cases = [(pair, measurements) for _, pair, measurements in self.cases() if pair.measurable]
        columns = {name: MeasurementColumn(len(cases)) for name in cases[0][1]}
        for line, (_, measurements) in enumerate(cases):
            for name, measurement in measurements.items():
                columns[name][line] = measurement
        verdicts = policy.judge_group(PairGroup([pair for pair, _ in cases]), columns)
        for line, (pair, measurements) in enumerate(cases):
            assert verdicts[line] == policy.judge(pair, measurements), pair.pair
