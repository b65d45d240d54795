"""The observer of a MindSpore training in PyNative mode, which reads the state and the inputs of its optimizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import mindspore
from mindspore import nn

from probe_check.mindspore_process import MindSporeProcess
from probe_check.monitor.array_measure import measure_array
from probe_check.monitor.figures import Figures
from probe_check.monitor.names import Namer, is_inside, list_spellings
from probe_check.monitor.observer import Observer, StepListener
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError

REFUSED_FLAGS = {
    "xy_distribution": "cells have no hooks that leave the graph of gradients unchanged",
    "monitor_mbs_grad": "an optimizer receives the gradients of a whole step",
    "mg_direction": "it needs gradients and moments of torch",
    "ur_distribution": "it needs TensorBoard and torch",
    "recording_l2_features": "it needs hooks on cells",
    "print_struct": "it needs hooks on cells",
    "stack_info": "it needs hooks on cells",
}
"""Fields that are refused for MindSpore, with the reason."""
MOMENT_ATTRIBUTES = (
    (Task.FIRST_MOMENT, ("moment1", "moments1", "exp_avg")),
    (Task.SECOND_MOMENT, ("moment2", "moments2", "exp_avg_sq")),
)
"""Attributes of optimizers with the moments of all parameters, in the order of the parameters."""


class MindSporeObserver(Observer):
    """An observer of a MindSpore optimizer.

    Args:
        models: The models, which name nothing: the parameters of the optimizer have names.
        optimizer: The optimizer.
        micro_steps: Number of micro-batches of a step.

    Raises:
        UserError: ``optimizer`` is not an optimizer, or the program runs in GRAPH_MODE.
    """

    framework = "mindspore"

    def __init__(self, models: Sequence[Any], optimizer: Any, micro_steps: int) -> None:
        super().__init__(models, optimizer, micro_steps)
        parameters = getattr(optimizer, "parameters", None)
        if not isinstance(optimizer, nn.Cell) or callable(parameters) or parameters is None:
            raise UserError(
                f"set_monitor() needs the optimizer of MindSpore, not {type(optimizer).__name__}.",
                "Pass optimizer=optimizer.",
            )
        if mindspore.get_context("mode") == mindspore.GRAPH_MODE:
            raise UserError(
                "Gradients are not observed in GRAPH_MODE, in which an optimizer runs as a compiled graph.",
                "Call mindspore.set_context(mode=mindspore.PYNATIVE_MODE) before set_monitor().",
            )
        self.process = MindSporeProcess()
        self._settings = MonitorSettings()
        self._names: list[str | None] = []
        self._gradients: Sequence[Any] = ()
        self._figures: list[Figures] = []

    def hook_steps(self, listener: StepListener) -> None:
        """Call the listener around each step of the optimizer."""

        def receive_gradients(_: Any, inputs: Any) -> None:
            gradients = inputs[0] if isinstance(inputs, tuple) and len(inputs) == 1 else inputs
            self._gradients = (gradients,) if isinstance(gradients, mindspore.Tensor) else gradients
            listener.observe_step_start()
            self._gradients = ()

        self._step_hooks.append(self.optimizer.register_forward_pre_hook(receive_gradients))
        self._step_hooks.append(self.optimizer.register_forward_hook(lambda *_: listener.observe_step_end()))

    def hook_step_ends(self, callback: Callable[[], None]) -> None:
        """Refuse ``record_steps``.

        Raises:
            UserError: Always.
        """
        raise UserError(
            '"record_steps" is not available for MindSpore, whose cells run while the step ends.',
            'Remove "record_steps" from the section "alert".',
        )

    def install(self, settings: MonitorSettings, listener: StepListener) -> None:
        """Select the parameters of a configuration."""
        for name, reason in REFUSED_FLAGS.items():
            if settings.is_on(name):
                raise UserError(
                    f'"{name}" is not available for MindSpore: {reason}.',
                    f'Remove "{name}", or set it to false.',
                )
        if settings.communication.is_enabled or settings.format == "tensorboard":
            raise UserError(
                '"cc_distribution" and "format": "tensorboard" are not available for MindSpore.',
                'Remove them, or set "format": "csv".',
            )
        self._settings = settings
        namer, targets = Namer(is_short=settings.has_short_names), settings.targets
        self._names = [
            namer.choose_name(0, name) if not targets or is_inside(list_spellings(0, name), targets) else None
            for name in (str(parameter.name) for parameter in self.optimizer.parameters)
        ]

    def remove(self) -> None:
        """Forget the parameters."""
        self._names = []
        self._figures.clear()

    def observe_before(self) -> None:
        """Measure gradients, moments and parameters before a step."""
        settings = self._settings
        if settings.is_on("param_distribution"):
            self._measure(Task.PARAMETER_BEFORE, self.optimizer.parameters)
        if settings.is_on("mv_distribution"):
            for task, attributes in MOMENT_ATTRIBUTES:
                candidates = (getattr(self.optimizer, name, None) for name in attributes)
                self._measure(task, next((moments for moments in candidates if moments is not None), ()))
        if settings.is_on("wg_distribution"):
            self._measure(Task.GRADIENT_REDUCED, self._gradients)

    def observe_after(self) -> None:
        """Measure parameters after a step."""
        if self._settings.is_on("param_distribution"):
            self._measure(Task.PARAMETER_AFTER, self.optimizer.parameters)

    def _measure(self, task: Task, tensors: Sequence[Any]) -> None:
        self._figures += self._measure_tensors(task, tensors)

    def _measure_tensors(self, task: Task, tensors: Sequence[Any]) -> Iterator[Figures]:
        settings = self._settings
        for name, tensor in zip(self._names, tensors):
            if name is None or not isinstance(tensor, mindspore.Tensor):
                continue
            dtype = f"mindspore.{str(tensor.dtype).lower()}"
            if tensor.dtype == mindspore.bfloat16:
                tensor = tensor.astype(mindspore.float32)
            values = measure_array(tensor.asnumpy(), settings.operations, settings.epsilon)
            yield Figures(task, 0, name, None, values, tuple(tensor.shape), dtype)

    def take(self) -> list[Figures]:
        """Return the figures of the step, and forget them."""
        figures, self._figures = self._figures, []
        return figures

    def list_figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of some tasks that were measured so far in this step."""
        return [each for each in self._figures if each.task in tasks]

    def take_histograms(self) -> Mapping[str, Any]:
        """Return nothing."""
        return {}

    def end_step(self) -> None:
        """Forget what was measured in the step."""
        self._figures.clear()
