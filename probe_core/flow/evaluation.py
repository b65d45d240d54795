"""The metrics and policies of one comparison: their choice, and the evaluation of rows by them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np

from probe_core.errors import UserError
from probe_core.flow.prefetching import GroupFunction
from probe_core.model import Column, Level, Measurement, Mode, Reason, Verdict
from probe_core.model.batches import OBSTACLES, RowBatch
from probe_core.model.columns import Array
from probe_core.model.measure import OpenPair, PairGroup
from probe_core.model.plan import Plan
from probe_core.model.report import MetricUse
from probe_core.model.results import LineMeasurements, MeasurementColumn, VerdictColumn
from probe_core.plugins.blame import FailureListener, PluginError, blame_plugin, create_plugin_error
from probe_core.plugins.manager import Manager
from probe_core.plugins.parameters import split_parameters
from probe_core.plugins.protocols import (
    BatchMetric,
    BatchPolicy,
    GroupMetric,
    GroupPolicy,
    Metric,
    Output,
    PartialBatchPolicy,
    Policy,
)
from probe_core.plugins.specs import (
    AnswerSpec,
    FinderSpec,
    MetricSpec,
    Needs,
    OutputSpec,
    PolicySpec,
    TableSpec,
    import_address,
)

RECORD_FIXES = {
    Mode.TENSOR: "Record both runs with task tensor",
    Mode.STATISTICS: "Record both runs with task statistics",
    Mode.MD5: "Record both runs with task statistics and summary_mode md5",
}

UNJUDGED_VERDICT = Verdict(Level.SKIP, "", measured=False)
"""Initial verdict of a row, before it is judged."""


@dataclass(frozen=True, slots=True)
class Selection:
    """The metrics and policies of a comparison.

    Attributes:
        policy: The policy of the table's verdicts.
        further_policies: The policies whose verdicts are in ``Row.further``.
        label_policies: The names of those whose labels have columns of their own.
        table_metrics: The names of the metrics that the table shows, with their parameters.
        added_metrics: The names of the metrics in further columns.
        other_metrics: The names of metrics that are measured and not shown.
        requested_metrics: The names of the metrics that the plan requests.
    """

    policy: PolicySpec
    further_policies: Sequence[PolicySpec]
    label_policies: tuple[str, ...]
    table_metrics: Sequence[str]
    added_metrics: Sequence[str]
    other_metrics: Sequence[str]
    requested_metrics: Sequence[str]


def select_contributions(plan: Plan, manager: Manager, mode: Mode, *, is_debug: bool) -> Selection:
    """Return the metrics and policies that a comparison of runs with data of a mode needs.

    Raises:
        UserError: The policies of the plan cannot judge such data.
    """
    answers = () if is_debug else plan.answers  # answers concern calls, not saved variables
    users: list[AnswerSpec | FinderSpec] = [manager.find("answers", name, AnswerSpec) for name in answers]
    users += manager.specs("finders", FinderSpec)[:1]
    output: Output | None = manager.make_first("outputs", OutputSpec)
    output_metrics = () if output is None else output.find_metrics(plan, manager, mode)
    table = manager.find("tables", mode.value, TableSpec)
    policies = _find_requested_policies(plan, manager, mode)
    policy = policies[0] if policies else manager.find("policies", table.policy, PolicySpec)
    names = dict.fromkeys(name for spec in users for name in spec.policies)
    further = [*policies[1:], *(manager.find("policies", name, PolicySpec) for name in names)]
    table_metrics = _find_metrics(table.make())
    added = [*(name for spec in policies for name in spec.metrics), *plan.metrics]
    used = (name for spec in users for name in spec.metrics.get(mode, ()))
    return Selection(
        policy,
        list({spec.name: spec for spec in further}.values()),
        tuple(spec.name for spec in policies[1:]),
        table_metrics,
        tuple(dict.fromkeys(name for name in added if name not in table_metrics)),
        [*policy.metrics, *used, *output_metrics],
        plan.metrics,
    )


def _find_requested_policies(plan: Plan, manager: Manager, mode: Mode) -> list[PolicySpec]:
    """Return the policies of a plan that can judge data of a mode, or raise UserError if none of them can."""
    requested = [manager.find("policies", name, PolicySpec) for name in plan.policies]
    policies = [spec for spec in requested if mode in spec.modes]
    if requested and not policies:
        needed = " or ".join(mode.value for mode in requested[0].modes)
        raise UserError(
            f'The policy "{plan.policies[0]}" judges runs that hold {needed}, and these hold {mode.value}.',
            f"{RECORD_FIXES[requested[0].modes[0]]}, or choose another policy.",
        )
    return policies


@dataclass(frozen=True, slots=True)
class _ActiveMetric:
    """A metric in use; ``name`` includes its parameters, ``keys`` are those of its measurements."""

    name: str
    spec: MetricSpec
    metric: Metric | BatchMetric | GroupMetric
    keys: tuple[str, ...]
    is_third_party: bool

    @property
    def measures_batches(self) -> bool:
        """True if the metric measures batches."""
        return isinstance(self.metric, BatchMetric)


class _ActivePolicy(NamedTuple):
    """A policy in use, which judges whole batches, or else groups of open pairs or single pairs."""

    spec: PolicySpec
    policy: Policy | BatchPolicy
    judges_batches: bool

    @classmethod
    def from_spec(cls, spec: PolicySpec, mode: Mode) -> _ActivePolicy:
        """Return the policy of a spec, for runs that hold data of a mode."""
        policy = spec.make()
        modes = policy.batch_modes if isinstance(policy, PartialBatchPolicy) else Mode
        return cls(spec, policy, isinstance(policy, BatchPolicy) and mode in modes)


class _OpenRows(NamedTuple):
    """Open pairs with their rows in a batch.

    Attributes:
        lines: The row of each pair.
        group: The pairs.
        measurable: The pairs that can be measured together.
        measurable_lines: Their rows.
        other_indices: The positions of the other pairs in the group.
    """

    lines: Array
    group: PairGroup
    measurable: PairGroup
    measurable_lines: Array
    other_indices: Sequence[int]

    @classmethod
    def from_group(cls, lines: Array, group: PairGroup) -> _OpenRows:
        """Return the pairs of a group, whose rows are ``lines``."""
        are_measurable = np.array([pair.measurable for pair in group], bool)
        others = np.flatnonzero(~are_measurable).tolist()
        return cls(lines, group, group.measurable, lines[are_measurable], others)

    @property
    def all_indices(self) -> Sequence[int]:
        """The positions of all pairs in the group."""
        return range(len(self.group))


class RowEvaluator:
    """The measurement and judgement of the rows of one comparison.

    Args:
        selection: The metrics and policies.
        manager: The plugins.
        mode: The kind of data in both runs.
        report_failure: Function that notes a failed plugin.

    Attributes:
        metric_names: The names of the metrics without parameters.
        table_columns: The metrics of the table, each with a column.
        added_columns: The metrics of further columns, each with a column.
        metric_uses: The metrics in use.
        group_functions: Functions of metrics to be called with large pairs before these are measured.
    """

    def __init__(self, selection: Selection, manager: Manager, mode: Mode, report_failure: FailureListener) -> None:
        self._report_failure = report_failure
        self._failed_names: set[str] = set()
        self._policy = _ActivePolicy.from_spec(selection.policy, mode)
        self._further = [_ActivePolicy.from_spec(spec, mode) for spec in selection.further_policies]
        names = dict.fromkeys([*selection.table_metrics, *selection.added_metrics, *selection.other_metrics])
        self._metrics = [_create_metric(name, manager, mode) for name in names]
        self.metric_names = frozenset(active.spec.name for active in self._metrics)
        self.table_columns = self._find_columns(selection.table_metrics)
        self.added_columns = self._find_columns(selection.added_metrics)
        self.metric_uses = [
            MetricUse(active.name, str(active.spec.origin), active.keys, active.name in selection.requested_metrics)
            for active in self._metrics
        ]
        self.group_functions = self._find_group_functions()

    @property
    def opens_pairs(self) -> bool:
        """True if a metric or policy measures or judges pair by pair."""
        measure_batches = all(active.measures_batches for active in self._metrics)
        return not (measure_batches and all(active.judges_batches for active in self._active_policies))

    @property
    def _active_policies(self) -> list[_ActivePolicy]:
        return [self._policy, *self._further]

    def begin(self, batch: RowBatch) -> None:
        """Add the measurements and verdicts of a batch, with the results of metrics that measure batches."""
        results, count = batch.results, len(batch)
        for active in self._metrics:
            columns = [MeasurementColumn(count) for _ in active.keys]
            if isinstance(active.metric, BatchMetric):
                columns = self._measure_items(active, active.metric.measure_batch, batch)
                for code, obstacle in enumerate(OBSTACLES[1:], 1):
                    lines = np.flatnonzero(batch.obstacles == code)
                    for column in columns if len(lines) else ():
                        column.codes[lines] = column.encode(Measurement(None, obstacle))
            results.measurements.update(zip(active.keys, columns))
        verdicts = [VerdictColumn([UNJUDGED_VERDICT], np.zeros(count, np.int32)) for _ in self._active_policies]
        results.verdicts = verdicts[0]
        results.further = {active.spec.name: column for active, column in zip(self._further, verdicts[1:])}

    def measure_group(self, batch: RowBatch, lines: Array, group: PairGroup) -> None:
        """Add the results of metrics and policies that work on open pairs, for some rows of a batch.

        Raises:
            PluginError: A policy failed.
        """
        rows = _OpenRows.from_group(lines, group)
        measurements = batch.results.measurements
        for active in self._metrics:
            if not active.measures_batches:
                self._measure_rows(active, [measurements[key] for key in active.keys], rows)
        for policy, verdicts in zip(self._active_policies, [batch.verdicts, *batch.results.further.values()]):
            if not policy.judges_batches:
                self._judge_rows(policy, verdicts, measurements, rows)

    def _measure_rows(self, active: _ActiveMetric, columns: Sequence[MeasurementColumn], rows: _OpenRows) -> None:
        """Add the measurements of a metric to the columns."""
        singles = rows.all_indices
        if isinstance(active.metric, GroupMetric) and len(rows.measurable):
            group_columns = self._measure_items(active, active.metric.measure_group, rows.measurable)
            for column, group_column in zip(columns, group_columns):
                column.put(rows.measurable_lines, group_column)
            singles = rows.other_indices
        for index in singles:
            for column, measurement in zip(columns, self._measure(active, rows.group[index])):
                column[rows.lines.item(index)] = measurement

    def _judge_rows(
        self,
        active: _ActivePolicy,
        verdicts: VerdictColumn,
        measurements: Mapping[str, MeasurementColumn],
        rows: _OpenRows,
    ) -> None:
        """Add the verdicts of a policy to the column ``verdicts``."""
        singles = rows.all_indices
        if isinstance(active.policy, GroupPolicy) and len(rows.measurable):
            selected = {key: column.select(rows.measurable_lines) for key, column in measurements.items()}
            with blame_plugin(active.spec.title, active.spec.origin):
                column = active.policy.judge_group(rows.measurable, selected)
                verdicts.put(rows.measurable_lines, _check_verdicts(column, len(rows.measurable), "judge_group"))
            singles = rows.other_indices
        for index in singles:
            line = rows.lines.item(index)
            verdicts[line] = self._judge(active, rows.group[index], LineMeasurements(measurements, line))

    def end(self, batch: RowBatch) -> None:
        """Add the verdicts of policies that judge batches."""
        results = batch.results
        if self._policy.judges_batches:
            results.verdicts = self._judge_batch(self._policy, batch)
        for active in self._further:
            if active.judges_batches:
                results.further[active.spec.name] = self._judge_batch(active, batch)

    def _judge(self, active: _ActivePolicy, pair: OpenPair, measurements: LineMeasurements) -> Verdict:
        with blame_plugin(active.spec.title, active.spec.origin):
            verdict = cast(Policy, active.policy).judge(pair, measurements)
            if type(verdict) is not Verdict:
                raise TypeError(f"judge must return a Verdict, not {type(verdict).__name__}")
            return verdict

    def _judge_batch(self, active: _ActivePolicy, batch: RowBatch) -> VerdictColumn:
        assert isinstance(active.policy, BatchPolicy)
        with blame_plugin(active.spec.title, active.spec.origin):
            verdicts = active.policy.judge_batch(batch)
            return _check_verdicts(verdicts, len(batch), "judge_batch")

    def _measure_items(
        self, active: _ActiveMetric, method: Callable[[Any], list[MeasurementColumn]], items: RowBatch | PairGroup
    ) -> list[MeasurementColumn]:
        """Return the columns that a method of a metric returns for a batch or a group."""
        count = len(items)
        try:
            columns = method(items)
            if [len(column.codes) for column in columns] != [count] * len(active.keys):
                raise TypeError(f"{method.__name__} must return {len(active.keys)} columns with all rows")
        except BaseException as error:  # a third-party metric may raise SystemExit
            if isinstance(error, KeyboardInterrupt) or not active.is_third_party:
                raise
            failed = self._note_failure(active, error)
            columns = [MeasurementColumn(count, (failed,)) for _ in active.keys]
            for column in columns:
                column.codes[:] = 1
        return columns

    def _find_columns(self, names: Sequence[str]) -> list[tuple[str, str]]:
        metrics = [metric for metric in self._metrics if metric.name in names]
        return [(metric.name, column) for metric in metrics for column in metric.spec.columns]

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
            measured = cast(Metric, active.metric).measure(pair)
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
        if active.is_third_party and active.name not in self._failed_names:
            self._failed_names.add(active.name)
            plugin_error = create_plugin_error(error, active.spec.title, active.spec.origin)
            if plugin_error is not None:
                self._report_failure(plugin_error, "Its cells in such rows are N/A, and Err_message shows the error.")
        return Measurement.failed(error, active.name)


def _find_metrics(columns: Sequence[Column]) -> tuple[str, ...]:
    """Return the metrics that columns show, each once, in their order."""
    sources = (column.source.partition(".")[0] for column in columns)
    return tuple(dict.fromkeys(name for name in sources if name not in ("target", "golden", "row")))


def _create_metric(name: str, manager: Manager, mode: Mode) -> _ActiveMetric:
    """Return the metric called ``name``, or raise UserError if it needs tensors and the runs hold none."""
    spec = manager.find("metrics", name, MetricSpec)
    if spec.needs is Needs.TENSOR and mode is not Mode.TENSOR:
        raise UserError(
            f'The metric "{split_parameters(name)[0]}" needs tensors, and these runs hold {mode.value} only.',
            "Record both runs with task tensor, or leave the metric out.",
        )
    keys = tuple(f"{name}.{column}" for column in spec.columns)
    metric = spec.make()
    return _ActiveMetric(name, spec, metric, keys, not spec.origin.is_of_probe)


def _check_verdicts(verdicts: Any, count: int, method: str) -> VerdictColumn:
    """Return the verdicts that a method of a policy returned; raise TypeError if they are not valid."""
    if not isinstance(verdicts, VerdictColumn) or len(verdicts.codes) != count:
        raise TypeError(f"{method} must return a VerdictColumn with a verdict for each row")
    return verdicts


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
