"""The measured values of the present step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from probe_check.monitor.figures import Figures, create_empty_figures
from probe_check.monitor.pytorch.measurement import TensorMeasurement, measure, resolve
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task


class ValueIdentity(NamedTuple):
    """The identity of a value in a step.

    Attributes:
        task: The kind of the value.
        model_index: The number of its model.
        name: The name of the parameter, or of the module and its side.
        micro_step: The number of the micro-batch; None for a value of the whole step.
        tag: The last part of the tag, if it is not that of the task.
    """

    task: Task
    model_index: int
    name: str
    micro_step: int | None = None
    tag: str = ""


class StepValues:
    """The measured values of the present step, in the order of observation.

    Args:
        settings: The configuration, which names the operations.
    """

    def __init__(self, settings: MonitorSettings) -> None:
        self._settings = settings
        self._values: dict[ValueIdentity, TensorMeasurement | None] = {}

    def measure(self, identity: ValueIdentity, tensor: torch.Tensor | None) -> None:
        """Measure a tensor; None stands for a value that is not a tensor, or a gradient that does not exist."""
        settings = self._settings
        self.add(identity, None if tensor is None else measure(tensor, settings.operations, settings.epsilon))

    def add(self, identity: ValueIdentity, measurement: TensorMeasurement | None) -> None:
        """Add a measurement, or replace the one with the same identity."""
        self._values[identity] = measurement

    def take(self) -> list[Figures]:
        """Return the figures of all values, and forget them."""
        values, self._values = self._values, {}
        return self._create_all_figures(values)

    def list_figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of the values of some tasks."""
        return self._create_all_figures({key: value for key, value in self._values.items() if key.task in tasks})

    def clear(self) -> None:
        """Forget all values."""
        self._values.clear()

    def _create_all_figures(self, values: Mapping[ValueIdentity, TensorMeasurement | None]) -> list[Figures]:
        resolve(value for value in values.values() if value is not None)
        return [self._create_figures(identity, value) for identity, value in values.items()]

    def _create_figures(self, identity: ValueIdentity, value: TensorMeasurement | None) -> Figures:
        task, model_index, name, micro_step, tag = identity
        if value is None:
            count = len(task.operations or self._settings.operations)
            return create_empty_figures(task, model_index, name, micro_step, count)
        numbers = tuple(float(number) for number in value.values)
        return Figures(task, model_index, name, micro_step, numbers, value.shape, value.dtype, tag)
