"""The verdict on a monitored training: the first value that left its band or is not finite."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from probe_recording.keeping.band import Band, load_band_rule

from probe_check.monitor.run_reader import MonitoredRun, Series, select_magnitude
from probe_check.monitor.tasks import Task

GRADIENT_TASKS = frozenset({Task.ACTIVATION_GRADIENT, Task.GRADIENT_UNREDUCED, Task.GRADIENT_REDUCED})
_TASKS_BEFORE_STEP = frozenset({Task.PARAMETER_BEFORE, Task.FIRST_MOMENT, Task.SECOND_MOMENT})
_TASK_ORDER = {task: place for place, task in enumerate(Task)}
_TASKS_WITHOUT_BAND = frozenset({Task.OTHER, Task.ATTENTION})
"""Tasks whose figures are shares or sums of different calls, of which only those not finite are reported."""

_ALWAYS_FINITE_OPERATIONS = frozenset({"norm", "entropy", "kernel_norm"})
"""Operations that have a finite result for each tensor of finite elements, also for an empty one."""


class FindingKind(Enum):
    """The fault of a value."""

    NOT_FINITE = "not_finite"
    OUTSIDE_BAND = "outside_band"


@dataclass(frozen=True, slots=True)
class MonitorFinding:
    """The first step in which a value is wrong.

    Attributes:
        kind: What is wrong.
        series: The figures of the value.
        step: The step.
        operation: The operation that shows it.
        value: Its result.
        level: The usual result; None if it is not known.
        highest: The end of the band; None if it is not known.
    """

    kind: FindingKind
    series: Series
    step: int
    operation: str
    value: float
    level: float | None = None
    highest: float | None = None

    @property
    def sort_key(self) -> tuple[int, ...]:
        """The place in time: step, part of the step, micro-batch, task, order; then the rank."""
        series = self.series
        part = 0 if series.task in _TASKS_BEFORE_STEP else 2 if series.task is Task.PARAMETER_AFTER else 1
        micro_step = 1 << 30 if series.micro_step is None else series.micro_step
        is_reverse = series.task is Task.GRADIENT_REDUCED  # in the order of the model; the last comes first
        order = -series.order if is_reverse else series.order
        return self.step, part, micro_step if part == 1 else 0, _TASK_ORDER[series.task], order, series.rank


@dataclass(frozen=True, slots=True)
class MonitorVerdict:
    """The verdict on a monitored training.

    Attributes:
        findings: The first finding of each value, earliest first.
        judged_count: Number of values with enough steps for a band.
        short_count: Number of values with too few steps for a band.
        least_steps: Number of steps that a band needs.
    """

    findings: tuple[MonitorFinding, ...]
    judged_count: int
    short_count: int
    least_steps: int

    @property
    def main(self) -> MonitorFinding | None:
        """The earliest finding; None if there is none."""
        return self.findings[0] if self.findings else None


def judge(run: MonitoredRun) -> MonitorVerdict:
    """Return the verdict on a run."""
    rule = load_band_rule()
    least_steps = rule.level_steps + rule.least_steps + 1
    findings: list[MonitorFinding] = []
    judged_count = short_count = 0
    for series in run.series:
        findings += _find_first(series)
        if series.task not in _TASKS_WITHOUT_BAND and select_magnitude(series) is not None:
            if sum(series.is_tensor) >= least_steps:
                judged_count += 1
            elif any(series.is_tensor):
                short_count += 1
    findings.sort(key=lambda finding: finding.sort_key)
    return MonitorVerdict(tuple(findings), judged_count, short_count, least_steps)


def _find_first(series: Series) -> list[MonitorFinding]:
    findings = [f for f in (_find_first_not_finite(series), _find_first_outside_band(series)) if f is not None]
    return sorted(findings, key=lambda finding: finding.step)[:1]


def _find_first_not_finite(series: Series) -> MonitorFinding | None:
    """Return the first step with a NaN or an infinity.

    The NaN of a value that is not a tensor does not count. Neither does that of an operation that never had
    a result, such as the mean of an empty tensor.
    """
    first: tuple[int, str] | None = None
    for operation, values in series.figures.items():
        index = _find_first_bad_index(series, operation, values)
        if index is not None and (first is None or index < first[0]):
            first = index, operation
    if first is None:
        return None
    index, operation = first
    value = series.figures[operation][index]
    return MonitorFinding(FindingKind.NOT_FINITE, series, series.steps[index], operation, value)


def _find_first_bad_index(series: Series, operation: str, values: Sequence[float]) -> int | None:
    had_result = operation in _ALWAYS_FINITE_OPERATIONS
    for index, value in enumerate(values):
        if not series.is_tensor[index]:
            continue
        if operation == "nans":
            is_bad = value > 0
        else:
            is_bad = math.isinf(value) or (math.isnan(value) and had_result)
            had_result = had_result or math.isfinite(value)
        if is_bad:
            return index
    return None


def _find_first_outside_band(series: Series) -> MonitorFinding | None:
    sizes = None if series.task in _TASKS_WITHOUT_BAND else select_magnitude(series)
    if sizes is None:
        return None
    operation, values = sizes
    rule = load_band_rule()
    rise = rule.smallest_rise["gradient_norm" if series.task in GRADIENT_TASKS else "size"]
    band = Band(rise, rule)
    for step, value in zip(series.steps, values):
        limit = band.add(value)
        if limit is not None:
            return MonitorFinding(FindingKind.OUTSIDE_BAND, series, step, operation, value, limit.level, limit.highest)
    return None
