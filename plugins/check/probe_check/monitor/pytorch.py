"""The observer of a PyTorch training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from probe_recording import Process, note
from torch import nn

from probe_check.monitor.figures import Figures, without_tensor
from probe_check.monitor.names import Namer, is_inside, spellings
from probe_check.monitor.observer import Observer, StepListener
from probe_check.monitor.pytorch_measure import Measured, measure, resolve
from probe_check.monitor.pytorch_modules import ModuleHooks, ObservedModule
from probe_check.monitor.pytorch_optimizer import (
    OptimizerStates,
    gradient_of,
    refuse_optimizer,
    sign_agreement,
)
from probe_check.monitor.settings import MonitorSettings, SideSelection
from probe_check.monitor.tasks import Task

SHARDED_CLASSES = ("FullyShardedDataParallel",)


class TorchProcess(Process):
    """A process that uses PyTorch: its rank in the default process group."""

    def _group(self) -> tuple[int, int] | None:
        dist = torch.distributed
        is_initialized = dist.is_available() and dist.is_initialized()
        return (dist.get_rank(), dist.get_world_size()) if is_initialized else None


@dataclass(slots=True, eq=False)
class Parameter:
    """A parameter that is observed.

    Attributes:
        model: The number of its model.
        name: The name in files.
        tensor: The parameter.
        is_duplicate: True if another rank writes its reduced gradient.
        micro_step: Number of micro-batches that reached it in the step.
    """

    model: int
    name: str
    tensor: nn.Parameter
    is_duplicate: bool
    micro_step: int = 0


Place = tuple[Task, int, str, "int | None", str]
"""The identity of a value in a step: task, number of the model, name, micro-batch, tag."""


class TorchObserver(Observer):
    """An observer of PyTorch models and their optimizer.

    Args:
        models: The models.
        optimizer: The optimizer.
        micro_steps: Number of micro-batches of a step.
        groups: The process groups ``dp_group`` and ``tp_group``.
        has_main_grad: True to observe ``main_grad`` of parameters that have one.
    """

    framework = "pytorch"

    def __init__(
        self,
        models: Sequence[nn.Module],
        optimizer: Any,
        micro_steps: int,
        groups: Mapping[str, Any],
        has_main_grad: bool,
    ) -> None:
        super().__init__(models, optimizer, micro_steps)
        self.process = TorchProcess()
        self._groups = groups
        self._has_main_grad = has_main_grad
        self._settings = MonitorSettings()
        self._listener: StepListener | None = None
        self._parameters: list[Parameter] = []
        self._handles: list[Any] = []
        self._nodes: list[Any] = []
        self._step_handles: list[Callable[[], None]] = []
        self._modules: ModuleHooks | None = None
        self._values: dict[Place, Measured | None] = {}
        self._histograms: dict[str, torch.Tensor] = {}

    # -- hooks -----------------------------------------------------------------------------

    def hook_steps(self, listener: StepListener) -> None:
        """Call the listener around each step of the optimizer."""
        optimizer = self.optimizer
        if isinstance(optimizer, torch.optim.Optimizer):
            optimizer.register_step_pre_hook(lambda *_: listener.before_step())
            optimizer.register_step_post_hook(lambda *_: listener.after_step())
            return
        step = optimizer.step

        def observed_step(*args: Any, **kwargs: Any) -> Any:
            listener.before_step()
            result = step(*args, **kwargs)
            listener.after_step()
            return result

        optimizer.step = observed_step

    def install(self, settings: MonitorSettings, listener: StepListener) -> None:
        """Install the hooks of a configuration."""
        self._settings, self._listener = settings, listener
        if any(settings.is_on(name) for name in ("wg_distribution", "mv_distribution", "mg_direction")):
            refuse_optimizer(self.optimizer)
        self._parameters = list(self._observed_parameters())
        if settings.is_on("wg_distribution"):
            self._hook_gradients()
        if settings.observes_forward or settings.observes_backward:
            self._modules = ModuleHooks(
                self._receive, lambda: listener.is_observed, listener.fail, self.micro_steps
            )
            self._modules.install(
                list(self._observed_modules()),
                forward=settings.observes_forward,
                backward=settings.observes_backward,
            )

    def remove(self) -> None:
        """Remove the hooks of ``install``."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._nodes.clear()
        if self._modules is not None:
            self._modules.remove()
            self._modules = None
        self._values.clear()
        self._parameters = []

    def _observed_parameters(self) -> Iterator[Parameter]:
        namer = Namer(is_short=self._settings.has_short_names)
        targets = self._settings.targets
        for model, module in enumerate(self.models):
            for name, tensor in module.named_parameters():
                if tensor.requires_grad and (not targets or is_inside(spellings(model, name), targets)):
                    shown = namer.shown(model, name)
                    yield Parameter(model, shown, tensor, self._is_duplicate(tensor))

    def _is_duplicate(self, tensor: nn.Parameter) -> bool:
        data, parallel = self._groups.get("dp_group"), self._groups.get("tp_group")
        is_whole = parallel is not None and not getattr(tensor, "tensor_model_parallel", False)
        if is_whole and torch.distributed.get_rank(parallel):
            return True
        return data is not None and torch.distributed.get_rank(data) != 0

    def _observed_modules(self) -> Iterator[tuple[nn.Module, ObservedModule]]:
        settings = self._settings
        namer = Namer(is_short=settings.has_short_names)
        takes_all = settings.is_on("all_xy") or not settings.targets
        for model, root in enumerate(self.models):
            for name, module in root.named_modules():
                if type(module).__name__ in SHARDED_CLASSES:
                    continue
                sides = self._sides(model, name)
                if sides is not None or takes_all:
                    yield module, ObservedModule(model, namer.shown(model, name), sides or {})

    def _sides(self, model: int, name: str) -> SideSelection | None:
        targets = self._settings.targets
        return next((targets[each] for each in spellings(model, name) if each in targets), None)

    # -- gradients -------------------------------------------------------------------------

    def _hook_gradients(self) -> None:
        sharded = [each for each in self._parameters if hasattr(each.tensor, "to_local")]
        for each in self._parameters:
            if hasattr(each.tensor, "to_local"):
                continue
            hook = partial(self._gradient_arrived, each)
            if self._has_main_grad and hasattr(each.tensor, "main_grad"):
                node: Any = each.tensor.expand_as(each.tensor).grad_fn
                accumulator = node.next_functions[0][0]
                self._nodes.append(accumulator)  # the hook lives as long as the node
                self._handles.append(accumulator.register_hook(hook))
            else:
                self._handles.append(each.tensor.register_post_accumulate_grad_hook(hook))
        if sharded:
            note(
                "probe: grad_unreduced is not written for sharded parameters, whose gradients are reduced "
                "before a hook receives them."
            )

    def _gradient_arrived(self, parameter: Parameter, *_: Any) -> None:
        number, parameter.micro_step = parameter.micro_step, parameter.micro_step + 1
        is_each = self._settings.is_on("monitor_mbs_grad")
        listener = self._listener
        if listener is None or not listener.is_observed:
            return
        if not is_each and parameter.micro_step != self.micro_steps:
            return
        try:
            gradient = gradient_of(parameter.tensor, has_main_grad=self._has_main_grad)
            if gradient is not None:
                place = self._place(Task.GRADIENT_UNREDUCED, parameter, number if is_each else None)
                self._measure(place, gradient)
        except Exception as error:  # of the framework: the backward must go on
            listener.fail(error)

    # -- steps -----------------------------------------------------------------------------

    def observe_before(self) -> None:
        """Measure gradients, moments and parameters before a step."""
        settings = self._settings
        states = OptimizerStates(self.optimizer)
        if settings.is_on("wg_distribution"):
            self._measure_gradients()
        for parameter in self._parameters:
            self._measure_moments(parameter, states)
        if settings.is_on("param_distribution"):
            self._measure_parameters(Task.PARAMETER_BEFORE)

    def observe_after(self) -> None:
        """Measure parameters after a step."""
        if self._settings.is_on("param_distribution"):
            self._measure_parameters(Task.PARAMETER_AFTER)

    def _measure_gradients(self) -> None:
        for parameter in self._parameters:
            if parameter.is_duplicate:
                continue
            gradient = gradient_of(parameter.tensor, has_main_grad=self._has_main_grad)
            if gradient is not None:
                self._measure(self._place(Task.GRADIENT_REDUCED, parameter), gradient)

    def _measure_moments(self, parameter: Parameter, states: OptimizerStates) -> None:
        settings = self._settings
        names = ("mv_distribution", "mg_direction", "ur_distribution")
        if not any(settings.is_on(name) for name in names):
            return
        moments = states.moments(parameter.tensor)
        if moments is not None and settings.is_on("mv_distribution"):
            for task, tensor in ((Task.FIRST_MOMENT, moments.first), (Task.SECOND_MOMENT, moments.second)):
                if tensor is not None:
                    self._measure(self._place(task, parameter), tensor)
        if settings.is_on("mg_direction"):
            gradient = gradient_of(parameter.tensor, has_main_grad=self._has_main_grad)
            first = None if moments is None else moments.first
            if gradient is not None:
                share = torch.ones(()) if first is None else sign_agreement(gradient, first)
                self._measure(self._place(Task.OTHER, parameter, tag="mg_direction"), share)
        if moments is not None and settings.is_on("ur_distribution"):
            pair = moments.update_and_ratio()
            for tag, values in zip(("adam_update", "adam_ratio"), pair or ()):
                name = f"{parameter.model}:{parameter.name}/rank{self.process.rank}/{tag}"
                self._histograms[name] = values

    def _measure_parameters(self, task: Task) -> None:
        for parameter in self._parameters:
            if parameter.tensor.numel():
                self._measure(self._place(task, parameter), parameter.tensor)

    @staticmethod
    def _place(task: Task, parameter: Parameter, micro_step: int | None = None, tag: str = "") -> Place:
        return task, parameter.model, parameter.name, micro_step, tag

    def _receive(
        self, task: Task, model: int, name: str, number: int, tensor: torch.Tensor | None
    ) -> None:
        """Measure an activation or its gradient; None stands for a value that is not a tensor."""
        place: Place = (task, model, name, number, "")
        if tensor is None:
            self._values[place] = None
        else:
            self._measure(place, tensor)

    def _measure(self, place: Place, tensor: torch.Tensor) -> None:
        settings = self._settings
        self._values[place] = measure(tensor, settings.operations, settings.epsilon)

    # -- results ---------------------------------------------------------------------------

    def take(self) -> list[Figures]:
        """Return the figures of the step in the order of observation, and forget them."""
        values, self._values = self._values, {}
        return self._figures_of(values)

    def _figures_of(self, values: Mapping[Place, Measured | None]) -> list[Figures]:
        resolve(value for value in values.values() if value is not None)
        return [self._figures(place, value) for place, value in values.items()]

    def _figures(self, place: Place, value: Measured | None) -> Figures:
        task, model, name, micro_step, tag = place
        if value is None:
            count = len(task.operations or self._settings.operations)
            return without_tensor(task, model, name, micro_step, count)
        numbers = tuple(float(number) for number in value.values)
        return Figures(task, model, name, micro_step, numbers, value.shape, value.dtype, tag)

    def figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of some tasks so far in this step; reduced gradients are measured now."""
        if Task.GRADIENT_REDUCED in tasks and self._settings.is_on("wg_distribution"):
            self._measure_gradients()
        chosen = {place: value for place, value in self._values.items() if place[0] in tasks}
        return self._figures_of(chosen)

    def histograms(self) -> Mapping[str, Any]:
        """Return the tensors whose distributions are written, and forget them."""
        histograms, self._histograms = self._histograms, {}
        return histograms

    def end_step(self) -> None:
        """Forget what was counted in the step."""
        for parameter in self._parameters:
            parameter.micro_step = 0
        if self._modules is not None:
            self._modules.end_step()
        self._values.clear()

    def group(self, process_group: Any) -> tuple[int, tuple[int, ...]]:
        """Return the position of this process in a process group, and the ranks of the group."""
        dist = torch.distributed
        rank = self.process.rank
        if not (dist.is_available() and dist.is_initialized()):
            return 0, (rank,)
        group = process_group if isinstance(process_group, dist.ProcessGroup) else None
        return dist.get_rank(group), tuple(dist.get_process_group_ranks(group))
