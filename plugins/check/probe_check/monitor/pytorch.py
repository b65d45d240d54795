"""The observer of a PyTorch training."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from probe_recording.api import Process
from torch import nn

from probe_check.monitor.figures import Figures, create_empty_figures
from probe_check.monitor.names import Namer, list_spellings
from probe_check.monitor.observer import Observer, StepListener
from probe_check.monitor.pytorch_communication import CommunicationObserver
from probe_check.monitor.pytorch_features import FeatureHooks
from probe_check.monitor.pytorch_measure import TensorMeasurement, measure, resolve
from probe_check.monitor.pytorch_modules import ModuleHooks, Observation, ObservedModule
from probe_check.monitor.pytorch_parameters import ParameterWatch, ValueIdentity, select_parameters
from probe_check.monitor.pytorch_steps import StepWrapper
from probe_check.monitor.pytorch_structure import StackHooks, StructureCollector
from probe_check.monitor.settings import MonitorSettings, SideSelection
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError

SKIPPED_CLASSES = ("FullyShardedDataParallel",)


class TorchProcess(Process):
    """A process that uses PyTorch: its rank in the default process group."""

    def _group(self) -> tuple[int, int] | None:
        dist = torch.distributed
        is_initialized = dist.is_available() and dist.is_initialized()
        return (dist.get_rank(), dist.get_world_size()) if is_initialized else None


class TorchObserver(Observer):
    """An observer of PyTorch models and their optimizer.

    Args:
        models: The models.
        optimizer: The optimizer.
        micro_steps: Number of micro-batches of a step.
        groups: The process groups ``dp_group`` and ``tp_group``.
        has_main_grad: True to observe ``main_grad`` of parameters that have one.

    Raises:
        UserError: ``optimizer`` has no method ``step``.
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
        if not callable(getattr(optimizer, "step", None)):
            raise UserError(
                f"set_monitor() needs an optimizer with a method step, not {type(optimizer).__name__}.",
                "Pass the optimizer of the training: optimizer=optimizer.",
            )
        self.process = TorchProcess()
        self._groups = groups
        self._has_main_grad = has_main_grad
        self._settings = MonitorSettings()
        self._parameters: ParameterWatch | None = None
        self._communication: CommunicationObserver | None = None
        self._structure: StructureCollector | None = None
        self._stacks: StackHooks | None = None
        self._hooks: list[ModuleHooks | FeatureHooks | ParameterWatch] = []
        self._values: dict[ValueIdentity, TensorMeasurement | None] = {}

    # -- hooks -----------------------------------------------------------------------------

    def hook_steps(self, listener: StepListener) -> None:
        """Call the listener around each step of the optimizer."""
        optimizer, before, after = self.optimizer, listener.observe_step_start, listener.observe_step_end
        if isinstance(optimizer, torch.optim.Optimizer):
            self._step_hooks.append(optimizer.register_step_pre_hook(lambda *_: before()))
            self._step_hooks.append(optimizer.register_step_post_hook(lambda *_: after()))
        else:
            self._step_hooks.append(StepWrapper(optimizer, before, after))

    def hook_step_ends(self, callback: Callable[[], None]) -> None:
        """Call a function after each step of the optimizer, when all hooks of the step have run."""
        self._step_hooks.append(StepWrapper(self.optimizer, None, callback))

    def install(self, settings: MonitorSettings, listener: StepListener) -> None:
        """Install the hooks of a configuration."""
        self._settings = settings
        parameters = list(select_parameters(self.models, settings, self._groups))
        watch = ParameterWatch(parameters, self.optimizer, settings, self.micro_steps, self._has_main_grad)
        self._parameters = watch
        self._hooks.append(watch)
        if settings.communication.is_enabled:
            self._communication = CommunicationObserver(
                settings.communication,
                settings.operations,
                settings.epsilon,
                lambda: listener.is_observed,
                listener.fail,
            )
            self._communication.install()
        if settings.is_on("wg_distribution"):
            watch.install_hooks(self._measure, listener)
        self._hook_modules(settings, listener)

    def _hook_modules(self, settings: MonitorSettings, listener: StepListener) -> None:
        has_structure = settings.is_on("print_struct")
        receive: Any = self._receive
        if has_structure:
            self._structure = StructureCollector()
            receive = self._structure.receive
        observation = Observation(lambda: listener.is_observed, listener.fail, self.micro_steps)
        if has_structure or settings.observes_forward or settings.observes_backward:
            modules = ModuleHooks(receive, observation)
            self._hooks.append(modules)
            modules.install(
                list(self._select_modules(takes_all=has_structure)),
                forward=has_structure or settings.observes_forward,
                backward=has_structure or settings.observes_backward,
            )
        if settings.is_on("recording_l2_features") and not has_structure:
            features = FeatureHooks(self._receive_features, observation)
            self._hooks.append(features)
            features.install(
                self.models,
                settings.feature_targets,
                settings.dimension_order,
                is_short=settings.has_short_names,
            )
        if settings.is_on("stack_info"):
            self._stacks = StackHooks(observation.is_active)
            self._stacks.install(self.models, is_short=settings.has_short_names)

    def _select_modules(self, *, takes_all: bool) -> Iterator[tuple[nn.Module, ObservedModule]]:
        settings = self._settings
        namer = Namer(is_short=settings.has_short_names)
        takes_others = takes_all or settings.is_on("all_xy") or not settings.targets
        for model, root in enumerate(self.models):
            for name, module in root.named_modules():
                shown = namer.choose_name(model, name)
                sides = None if takes_all else self._find_sides(model, name)
                if type(module).__name__ not in SKIPPED_CLASSES and (sides is not None or takes_others):
                    yield module, ObservedModule(model, shown, sides or {})

    def _find_sides(self, model: int, name: str) -> SideSelection | None:
        targets = self._settings.targets
        return next((targets[each] for each in list_spellings(model, name) if each in targets), None)

    def remove(self) -> None:
        """Remove the hooks of ``install``."""
        hooks, self._hooks = self._hooks, []
        for each in hooks:
            each.remove()
        if self._communication is not None:
            self._communication.remove()
        if self._stacks is not None:
            self._stacks.remove()
        self._parameters = self._communication = self._structure = self._stacks = None
        self._values.clear()

    # -- steps -----------------------------------------------------------------------------

    def observe_before(self) -> None:
        """Measure gradients, moments and parameters before a step."""
        if self._parameters is not None:
            self._parameters.measure_before(self._measure, self.process.rank)

    def observe_after(self) -> None:
        """Measure parameters after a step."""
        if self._parameters is not None and self._settings.is_on("param_distribution"):
            self._parameters.measure_parameters(self._measure, Task.PARAMETER_AFTER)

    def _receive(self, task: Task, model: int, name: str, number: int, tensor: torch.Tensor | None) -> None:
        """Measure an activation or its gradient; None stands for a value that is not a tensor."""
        place: ValueIdentity = (task, model, name, number, "")
        if tensor is None:
            self._values[place] = None
        else:
            self._measure(place, tensor)

    def _receive_features(
        self, task: Task, model: int, name: str, number: int | None, features: TensorMeasurement
    ) -> None:
        self._values[task, model, name, number, ""] = features

    def _measure(self, place: ValueIdentity, tensor: torch.Tensor) -> None:
        settings = self._settings
        self._values[place] = measure(tensor, settings.operations, settings.epsilon)

    # -- results ---------------------------------------------------------------------------

    def take(self) -> list[Figures]:
        """Return the figures of the step in the order of observation, and forget them."""
        values, self._values = self._values, {}
        communication = [] if self._communication is None else self._communication.take()
        return [*self._resolve_figures(values), *communication]

    def _resolve_figures(self, values: Mapping[ValueIdentity, TensorMeasurement | None]) -> list[Figures]:
        resolve(value for value in values.values() if value is not None)
        return [self._create_figures(place, value) for place, value in values.items()]

    def _create_figures(self, place: ValueIdentity, value: TensorMeasurement | None) -> Figures:
        task, model, name, micro_step, tag = place
        if value is None:
            count = len(task.operations or self._settings.operations)
            return create_empty_figures(task, model, name, micro_step, count)
        numbers = tuple(float(number) for number in value.values)
        return Figures(task, model, name, micro_step, numbers, value.shape, value.dtype, tag)

    def list_figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of some tasks so far in this step; reduced gradients are measured now."""
        if Task.GRADIENT_REDUCED in tasks and self._parameters is not None:
            self._parameters.measure_gradients(self._measure)
        return self._resolve_figures({place: v for place, v in self._values.items() if place[0] in tasks})

    def take_histograms(self) -> Mapping[str, Any]:
        """Return the tensors whose distributions are written, and forget them."""
        if self._parameters is None:
            return {}
        histograms, self._parameters.histograms = self._parameters.histograms, {}
        return histograms

    def get_structure(self) -> Mapping[str, Any] | None:
        """Return the structure of the models; None if it is not noted."""
        return None if self._structure is None else self._structure.create_structure()

    def take_stacks(self) -> Mapping[str, str]:
        """Return the call stack of each module, and note no more of them."""
        return {} if self._stacks is None else self._stacks.take()

    def get_communication_stacks(self) -> Mapping[str, set[str]] | None:
        """Return the call stacks of each collective operation; None if they are not noted."""
        if self._communication is None or not self._settings.communication.is_log_only:
            return None
        return self._communication.stacks

    def end_step(self) -> None:
        """Forget what was counted in the step."""
        for each in self._hooks:
            each.end_step()
        self._values.clear()

    def get_group_position(self, process_group: Any) -> tuple[int, tuple[int, ...]]:
        """Return the position of this process in a process group, and the ranks of the group."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()):
            return 0, (self.process.rank,)
        group: Any = process_group if isinstance(process_group, dist.ProcessGroup) else dist.group.WORLD
        return dist.get_rank(group), tuple(dist.get_process_group_ranks(group))
