"""The metrics and policies of one comparison."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from probe_core.errors import UserError
from probe_core.flow.prefetching import GroupFunction
from probe_core.model import Column, Level, Measurement, Mode, Reason, Verdict
from probe_core.model.batches import OBSTACLES, RowBatch
from probe_core.model.measure import Array, OpenPair, PairGroup
from probe_core.model.plan import Plan
from probe_core.model.report import MetricUse
from probe_core.model.results import LineMeasurements, MeasurementColumn, VerdictColumn
from probe_core.plugins.blame import FailureListener, PluginError, blame_plugin, create_plugin_error
from probe_core.plugins.manager import Manager
from probe_core.plugins.parameters import split_parameters
from probe_core.plugins.protocols import Metric, Policy
from probe_core.plugins.specs import AnswerSpec, FinderSpec, MetricSpec, Needs, PolicySpec, TableSpec, import_address

RECORD_FIXES = {
    Mode.TENSOR: "Record both runs with task tensor",
    Mode.STATISTICS: "Record both runs with task statistics",
    Mode.MD5: "Record both runs with task statistics and summary_mode md5",
}

UNJUDGED_VERDICT = Verdict(Level.SKIP, "", measured=False)
"""Initial verdict of a row, before it is judged."""


@dataclass(frozen=True, slots=True)
class _ActiveMetric:
    """A metric in use; ``asked`` is its name with parameters, ``names`` are the keys of its measurements."""

    asked: str
    spec: MetricSpec
    metric: Metric
    names: tuple[str, ...]
    is_third_party: bool

    @property
    def is_columnar(self) -> bool:
        """True if the metric measures batches."""
        return hasattr(self.metric, "measure_batch")


class _ActivePolicy(NamedTuple):
    """A policy in use: it judges batches, or groups of pairs if ``is_grouped``, or single pairs."""

    spec: PolicySpec
    policy: Policy
    is_columnar: bool
    is_grouped: bool

    @classmethod
    def from_spec(cls, spec: PolicySpec, mode: Mode) -> _ActivePolicy:
        """Return the policy of a spec, for runs that hold data of a mode."""
        policy = spec.make()
        is_columnar = hasattr(policy, "judge_batch") and mode in getattr(policy, "batch_modes", Mode)
        return cls(spec, policy, is_columnar, hasattr(policy, "judge_group"))


class RowEvaluator:
    """The metrics and policies of one comparison.

    Args:
        plan: The plan.
        manager: The plugins.
        mode: The kind of data in both runs.
        answer_specs: The answers that the plan requests, and the finder of suspects.
        output_metrics: The metrics that the result files need in addition to those of the table.
        report_failure: Function that notes a failed plugin.

    Attributes:
        names: The names of the metrics.
        shown: The metrics of the table, with their columns.
        added_columns: The metrics that the plan adds to the table, with their columns.
        label_policies: The policies whose labels have columns of their own.
        ahead: Functions of metrics to be called with large pairs before these are measured.
    """

    def __init__(
        self,
        plan: Plan,
        manager: Manager,
        mode: Mode,
        answer_specs: Sequence[AnswerSpec | FinderSpec],
        output_metrics: Sequence[str],
        report_failure: FailureListener,
    ) -> None:
        self._report_failure = report_failure
        self._failed_names: set[str] = set()
        table = manager.find("tables", mode.value, TableSpec)
        columns: Sequence[Column] = table.make()
        policies = [manager.find("policies", name, PolicySpec) for name in plan.policies]
        unusable = [name for name, spec in zip(plan.policies, policies) if mode not in spec.modes]
        policies = [spec for spec in policies if mode in spec.modes]
        if unusable and not policies:
            raise _create_policy_error(unusable[0], manager.find("policies", unusable[0], PolicySpec), mode)
        chosen = policies[0] if policies else manager.find("policies", table.policy, PolicySpec)
        self._policy = _ActivePolicy.from_spec(chosen, mode)
        self.label_policies = tuple(spec.name for spec in policies[1:])
        names = dict.fromkeys(name for spec in answer_specs for name in spec.policies)
        further = [*policies[1:], *(manager.find("policies", name, PolicySpec) for name in names)]
        self._further = [_ActivePolicy.from_spec(spec, mode) for spec in {spec.name: spec for spec in further}.values()]
        table_metrics = _find_metrics(columns)
        further_metrics = [name for spec in policies for name in spec.metrics] + list(plan.metrics)
        added = tuple(dict.fromkeys(name for name in further_metrics if name not in table_metrics))
        metric_names = [
            *table_metrics,
            *added,
            *chosen.metrics,
            *(name for spec in answer_specs for name in spec.metrics.get(mode, ())),
            *output_metrics,
        ]
        self._asked = plan.metrics
        self._metrics = [_create_metric(name, manager, mode) for name in dict.fromkeys(metric_names)]
        self.names = frozenset(active.spec.name for active in self._metrics)
        self.shown: Sequence[tuple[str, str]] = self._find_columns(table_metrics)
        self.added_columns: Sequence[tuple[str, str]] = self._find_columns(added)
        self.ahead = self._find_group_functions()

    @property
    def opens_pairs(self) -> bool:
        """True if a metric or policy measures or judges pair by pair."""
        contributions: list[_ActiveMetric | _ActivePolicy] = [*self._metrics, *self._active_policies]
        return not all(active.is_columnar for active in contributions)

    @property
    def _active_policies(self) -> list[_ActivePolicy]:
        return [self._policy, *self._further]

    def begin(self, batch: RowBatch) -> None:
        """Add the measurements and verdicts of a batch, with the results of columnar metrics."""
        results, count = batch.results, len(batch)
        for active in self._metrics:
            columns = [MeasurementColumn(count) for _ in active.names]
            if active.is_columnar:
                columns = self._measure_items(active, active.metric.measure_batch, batch)  # type: ignore[attr-defined]
                for code, obstacle in enumerate(OBSTACLES[1:], 1):
                    lines = np.flatnonzero(batch.obstacles == code)
                    for column in columns if len(lines) else ():
                        column.codes[lines] = column.encode(Measurement(None, obstacle))
            results.measurements.update(zip(active.names, columns))
        verdicts = [VerdictColumn([UNJUDGED_VERDICT], np.zeros(count, np.int32)) for _ in self._active_policies]
        results.verdicts = verdicts[0]
        results.further = {active.spec.name: column for active, column in zip(self._further, verdicts[1:])}

    def measure_group(self, batch: RowBatch, lines: Array, group: PairGroup) -> None:
        """Add the results of metrics and policies that work on open pairs, for some rows of a batch.

        Raises:
            PluginError: A policy failed.
        """
        are_measurable = np.array([pair.measurable for pair in group], bool)
        measured, rest = group.measurable, np.flatnonzero(~are_measurable).tolist()
        measurements = batch.results.measurements
        for active in self._metrics:
            if active.is_columnar:
                continue
            columns = [measurements[name] for name in active.names]
            singles: Sequence[int] = range(len(group))
            measure = getattr(active.metric, "measure_group", None)
            if measure is not None and len(measured):
                for column, group_column in zip(columns, self._measure_items(active, measure, measured)):
                    column.put(lines[are_measurable], group_column)
                singles = rest
            for place in singles:
                for column, measurement in zip(columns, self._measure(active, group[place])):
                    column[lines.item(place)] = measurement
        for active_policy, verdicts in zip(self._active_policies, [batch.verdicts, *batch.results.further.values()]):
            if active_policy.is_columnar:
                continue
            singles = range(len(group))
            if active_policy.is_grouped and len(measured):
                selected = {name: column.select(lines[are_measurable]) for name, column in measurements.items()}
                with blame_plugin(active_policy.spec.title, active_policy.spec.origin):
                    column = active_policy.policy.judge_group(measured, selected)  # type: ignore[attr-defined]
                    verdicts.put(lines[are_measurable], _check_verdicts(column, len(measured), "judge_group"))
                singles = rest
            for place in singles:
                line = lines.item(place)
                verdicts[line] = self._judge(active_policy, group[place], LineMeasurements(measurements, line))

    def end(self, batch: RowBatch) -> None:
        """Add the verdicts of columnar policies."""
        results = batch.results
        if self._policy.is_columnar:
            results.verdicts = self._judge_batch(self._policy, batch)
        for active in self._further:
            if active.is_columnar:
                results.further[active.spec.name] = self._judge_batch(active, batch)

    def _judge(self, active: _ActivePolicy, pair: OpenPair, measurements: LineMeasurements) -> Verdict:
        try:
            verdict = active.policy.judge(pair, measurements)
            if type(verdict) is not Verdict:
                raise TypeError(f"judge must return a Verdict, not {type(verdict).__name__}")
        except BaseException as error:  # a third-party policy may raise SystemExit
            plugin_error = create_plugin_error(error, active.spec.title, active.spec.origin)
            if plugin_error is None:
                raise
            raise plugin_error from error
        return verdict

    def _judge_batch(self, active: _ActivePolicy, batch: RowBatch) -> VerdictColumn:
        with blame_plugin(active.spec.title, active.spec.origin):
            verdicts = active.policy.judge_batch(batch)  # type: ignore[attr-defined]
            return _check_verdicts(verdicts, len(batch), "judge_batch")

    def _measure_items(
        self, active: _ActiveMetric, method: Callable[[Any], list[MeasurementColumn]], items: RowBatch | PairGroup
    ) -> list[MeasurementColumn]:
        """Return the columns that a method of a metric returns for a batch or a group."""
        count = len(items)
        try:
            columns = method(items)
            if [len(column.codes) for column in columns] != [count] * len(active.names):
                raise TypeError(f"{method.__name__} must return {len(active.names)} columns with all rows")
        except BaseException as error:  # a third-party metric may raise SystemExit
            if isinstance(error, KeyboardInterrupt) or not active.is_third_party:
                raise
            failed = self._note_failure(active, error)
            columns = [MeasurementColumn(count, (failed,)) for _ in active.names]
            for column in columns:
                column.codes[:] = 1
        return columns

    @property
    def metric_uses(self) -> list[MetricUse]:
        """The metrics in use."""
        return [
            MetricUse(active.asked, str(active.spec.origin), active.names, active.asked in self._asked)
            for active in self._metrics
        ]

    def _find_columns(self, names: Sequence[str]) -> list[tuple[str, str]]:
        metrics = [metric for metric in self._metrics if metric.asked in names]
        return [(metric.asked, column) for metric in metrics for column in metric.spec.columns]

    def _find_group_functions(self) -> list[GroupFunction]:
        """Return the functions of metrics to be called before pairs are measured; a failure costs only time."""
        functions: dict[str, GroupFunction] = {}
        for active in self._metrics:
            location = active.spec.ahead
            if location and location not in functions:
                try:
                    with blame_plugin(f"{active.spec.title}: {location}", active.spec.origin):
                        functions[location] = import_address(location)
                except PluginError as error:
                    self._report_failure(error, "The metric still measures, but more slowly.")
        return list(functions.values())

    def _measure(self, active: _ActiveMetric, pair: OpenPair) -> Sequence[Measurement]:
        columns = active.spec.columns
        obstacle = pair.obstacle if active.spec.needs is Needs.TENSOR else pair.recorded_obstacle
        if obstacle is not None:
            return [Measurement(None, obstacle)] * len(columns)
        is_third_party = active.is_third_party
        try:
            measured = active.metric.measure(pair)
            if is_third_party and not isinstance(measured, Sequence):
                raise TypeError(f"measure must return a list of Measurement, not {type(measured).__name__}")
            if len(measured) != len(columns):
                raise ValueError(f"measure must return {len(columns)} Measurement, not {len(measured)}")
            return [_check_measurement(item) for item in measured] if is_third_party else measured
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a third-party metric may raise SystemExit
            return [self._note_failure(active, error)] * len(columns)

    def _note_failure(self, active: _ActiveMetric, error: BaseException) -> Measurement:
        """Note once that a third-party metric failed, and return a measurement that holds the error."""
        if active.is_third_party and active.asked not in self._failed_names:
            self._failed_names.add(active.asked)
            plugin_error = create_plugin_error(error, active.spec.title, active.spec.origin)
            if plugin_error is not None:
                self._report_failure(plugin_error, "Its cells in such rows are N/A, and Err_message shows the error.")
        return Measurement.failed(error, active.asked)


def _find_metrics(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the metrics that columns show, each once, in their order."""
    sources = (column.source.partition(".")[0] for column in columns)
    return tuple(dict.fromkeys(name for name in sources if name not in ("target", "golden", "row")))


def _create_metric(asked: str, manager: Manager, mode: Mode) -> _ActiveMetric:
    """Return the metric called ``asked``, or raise UserError if it needs tensors and the runs hold none."""
    spec = manager.find("metrics", asked, MetricSpec)
    if spec.needs is Needs.TENSOR and mode is not Mode.TENSOR:
        raise UserError(
            f'The metric "{split_parameters(asked)[0]}" needs tensors, and these runs hold {mode.value} only.',
            "Record both runs with task tensor, or leave the metric out.",
        )
    names = tuple(f"{asked}.{column}" for column in spec.columns)
    metric = spec.make()
    return _ActiveMetric(asked, spec, metric, names, not spec.origin.is_of_probe)


def _check_verdicts(verdicts: Any, count: int, method: str) -> VerdictColumn:
    """Return the verdicts that a method of a policy returned; raise TypeError if they are not valid."""
    if not isinstance(verdicts, VerdictColumn) or len(verdicts.codes) != count:
        raise TypeError(f"{method} must return a VerdictColumn with a verdict for each row")
    return verdicts


def _create_policy_error(name: str, spec: PolicySpec, mode: Mode) -> UserError:
    needed = " or ".join(mode.value for mode in spec.modes)
    return UserError(
        f'The policy "{name}" judges runs that hold {needed}, and these hold {mode.value}.',
        f"{RECORD_FIXES[spec.modes[0]]}, or choose another policy.",
    )


def _check_measurement(measured: Any) -> Measurement:
    """Check a third party's measurement, and convert numpy scalars; raise TypeError if it is not valid."""
    if not isinstance(measured, Measurement):
        raise TypeError(f"measure must return a list of Measurement, not of {type(measured).__name__}")
    value: Any = measured.value
    reason: Any = measured.reason
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, (float, int, str, type(None))):
        raise TypeError(f"a Measurement holds a number or a text, not {type(value).__name__}")
    if reason is not None and not (isinstance(reason, Reason) and isinstance(reason.detail, str)):
        raise TypeError(f"the reason of a Measurement is a Reason, not {type(reason).__name__}")
    return Measurement(value, reason)
