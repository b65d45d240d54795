"""The rules of alerts: which figures are reported as events (docs/monitor.md#alerts)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from probe_check.monitor.alert_settings import RuleName, RuleSettings
from probe_check.monitor.figures import Figures
from probe_core.files.packaged import load_yaml


@dataclass(frozen=True, slots=True)
class AlertNumbers:
    """The numbers of the rules; ``alerts.yaml`` lists them with their sources.

    Attributes:
        decay: Weight of the past in the mean of a figure.
        turbulent: Operations to which AnomalyTurbulence applies.
    """

    decay: float
    turbulent: frozenset[str]


@cache
def load_alert_numbers() -> AlertNumbers:
    """Return the numbers in ``alerts.yaml``."""
    data = load_yaml(__package__, "alerts.yaml")
    return AlertNumbers(float(data["decay"]), frozenset(data["turbulent"]))


@dataclass(frozen=True, slots=True)
class Alert:
    """A figure that a rule reports.

    Attributes:
        rule: The rule.
        figures: The figures of the tensor.
        operation: The operation of the reported figure.
        value: The figure.
        mean: The mean of the absolute values before it; None for the first one.
        step: The step.
        order: The position among all tensors of the step, in the order of observation.
    """

    rule: RuleName
    figures: Figures
    operation: str
    value: float
    mean: float | None
    step: int
    order: int


class AlertScanner:
    """The rules, and the mean of each figure so far.

    Args:
        rules: The rules; the first that fires names the event.
    """

    def __init__(self, rules: Sequence[RuleSettings]) -> None:
        self._rules = tuple(rules)
        self._decay = load_alert_numbers().decay
        self._means: dict[tuple[object, ...], float] = {}

    def scan(self, figures: Figures, operations: Sequence[str], step: int, order: int) -> list[Alert]:
        """Return the alerts for the figures of a tensor.

        A value that is not finite does not change the mean.

        Args:
            figures: The figures; those of a value that is not a tensor cause no alert.
            operations: The operations in the order of the figures.
            step: The step.
            order: The position of the tensor in the step.
        """
        if not self._rules or figures.shape is None:
            return []
        alerts = []
        place = figures.task, figures.tag, figures.model, figures.name, figures.micro_step
        for operation, value in zip(operations, figures.values):
            key = (*place, operation)
            mean = self._means.get(key)
            if math.isfinite(value):
                size = abs(value)
                self._means[key] = _update_mean(mean, size, self._decay)
            for rule in self._rules:
                if _fires(rule, operation, value, mean):
                    alerts.append(Alert(rule.name, figures, operation, value, mean, step, order))
                    break
        return alerts


def _update_mean(mean: float | None, size: float, decay: float) -> float:
    return size if mean is None else decay * mean + (1 - decay) * size


def _fires(rule: RuleSettings, operation: str, value: float, mean: float | None) -> bool:
    """Return True if a rule reports a value; ``mean`` is that of the values before."""
    if rule.name is RuleName.NAN:
        return math.isnan(value) or (rule.threshold is not None and abs(value) > rule.threshold)
    if operation not in load_alert_numbers().turbulent or mean is None or rule.threshold is None:
        return False
    return abs(value) > mean * (1 + rule.threshold)
