"""The observer of a PyTorch training."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from probe_recording.api import belongs_to_recorder, stack_of
from probe_recording.sites import list_stack_lines
from torch import nn

from probe_check.monitor.figures import Figures
from probe_check.monitor.names import Namer
from probe_check.monitor.observer import Observer, StepListener, TrainingNotes
from probe_check.monitor.pytorch.activations import ActivationHooks, select_modules
from probe_check.monitor.pytorch.communication import CommunicationHooks
from probe_check.monitor.pytorch.features import FeatureHooks
from probe_check.monitor.pytorch.hooks import Observation, TrainingHooks
from probe_check.monitor.pytorch.parameters import ParameterHooks, select_parameters
from probe_check.monitor.pytorch.values import StepValues, ValueIdentity
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task
from probe_check.torch_process import TorchProcess
from probe_core.errors import UserError


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
        self._values = StepValues(self._settings)
        self._hooks: list[TrainingHooks] = []
        self._parameters: ParameterHooks | None = None
        self._communication: CommunicationHooks | None = None
        self._structure: StructureCollector | None = None
        self._stacks: StackHooks | None = None

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
        self._values = StepValues(settings)
        observation = Observation(lambda: listener.is_observed, listener.fail, self.micro_steps)
        self._hook_parameters(settings, observation)
        if settings.communication.is_enabled:
            self._communication = CommunicationHooks(settings, observation)
            self._hooks.append(self._communication)
        if settings.is_on("print_struct"):
            self._structure = StructureCollector()
        self._hook_activations(settings, observation)
        if settings.is_on("recording_l2_features") and self._structure is None:
            self._hooks.append(FeatureHooks(self.models, settings, self._values.add, observation))
        if settings.is_on("stack_info"):
            self._stacks = StackHooks(self.models, observation.is_active, is_short=settings.has_short_names)
            self._hooks.append(self._stacks)

    def _hook_parameters(self, settings: MonitorSettings, observation: Observation) -> None:
        parameters = list(select_parameters(self.models, settings, self._groups))
        self._parameters = ParameterHooks(
            parameters, self.optimizer, settings, self._values, observation, has_main_grad=self._has_main_grad
        )
        self._hooks.append(self._parameters)
        if settings.is_on("wg_distribution"):
            self._parameters.install()

    def _hook_activations(self, settings: MonitorSettings, observation: Observation) -> None:
        structure = self._structure
        has_forward = structure is not None or settings.observes_forward
        has_backward = structure is not None or settings.observes_backward
        if has_forward or has_backward:
            receive = self._values.measure if structure is None else structure.receive
            hooks = ActivationHooks(receive, observation, has_forward=has_forward, has_backward=has_backward)
            hooks.install(list(select_modules(self.models, settings, takes_all=structure is not None)))
            self._hooks.append(hooks)

    def remove(self) -> None:
        """Remove the hooks of ``install``."""
        hooks, self._hooks = self._hooks, []
        for each_hooks in hooks:
            each_hooks.remove()
        self._parameters = self._communication = self._structure = self._stacks = None
        self._values.clear()

    # -- steps -----------------------------------------------------------------------------

    def observe_before(self) -> None:
        """Measure gradients, moments and parameters before a step."""
        if self._parameters is not None:
            self._parameters.measure_before(self.process.rank)

    def observe_after(self) -> None:
        """Measure parameters after a step."""
        if self._parameters is not None and self._settings.is_on("param_distribution"):
            self._parameters.measure_parameters(Task.PARAMETER_AFTER)

    def end_step(self) -> None:
        """Forget what was counted in the step."""
        for hooks in self._hooks:
            hooks.end_step()
        self._values.clear()

    # -- results ---------------------------------------------------------------------------

    def take(self) -> list[Figures]:
        """Return the figures of the step in the order of observation, and forget them."""
        communication = [] if self._communication is None else self._communication.take()
        return [*self._values.take(), *communication]

    def list_figures(self, tasks: Sequence[Task]) -> list[Figures]:
        """Return the figures of some tasks so far in this step; reduced gradients are measured now."""
        if Task.GRADIENT_REDUCED in tasks and self._parameters is not None:
            self._parameters.measure_gradients()
        return self._values.list_figures(tasks)

    def take_histograms(self) -> Mapping[str, Any]:
        """Return the tensors whose distributions are written, and forget them."""
        return {} if self._parameters is None else self._parameters.take_histograms()

    def take_notes(self) -> TrainingNotes:
        """Return what was noted besides figures, and stop noting call stacks of modules."""
        communication = self._communication
        return TrainingNotes(
            structure=None if self._structure is None else self._structure.create_structure(),
            module_stacks={} if self._stacks is None else self._stacks.take(),
            communication_stacks=None if communication is None else communication.get_logged_stacks(),
        )

    def get_group_position(self, process_group: Any) -> tuple[int, tuple[int, ...]]:
        """Return the position of this process in a process group, and the ranks of the group."""
        dist = torch.distributed
        if not (dist.is_available() and dist.is_initialized()):
            return 0, (self.process.rank,)
        group: Any = process_group if isinstance(process_group, dist.ProcessGroup) else dist.group.WORLD
        return dist.get_rank(group), tuple(dist.get_process_group_ranks(group))


# -- a replacement of the method ``step`` of an optimizer -------------------------------------------


class StepWrapper:
    """A wrapper of the method ``step`` of an optimizer, which calls functions around each step.

    Args:
        optimizer: The optimizer.
        before: A function to call before each step.
        after: A function to call after each step that raises no exception.
    """

    def __init__(self, optimizer: Any, before: Callable[[], None] | None, after: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._is_removed = False
        self._replaced_attribute = getattr(optimizer, "__dict__", {}).get("step")
        original = optimizer.step

        @functools.wraps(original)
        def run_observed_step(*args: Any, **kwargs: Any) -> Any:
            if before is not None and not self._is_removed:
                before()
            result = original(*args, **kwargs)
            if not self._is_removed:
                after()
            return result

        self._wrapper = optimizer.step = run_observed_step

    def remove(self) -> None:
        """Restore the method, or call it without the functions if another wrapper replaced this one."""
        self._is_removed = True
        if self._optimizer.step is not self._wrapper:
            return
        if self._replaced_attribute is None:
            del self._optimizer.step
        else:
            self._optimizer.step = self._replaced_attribute


# -- the structure of a model, and the call stacks of its modules -----------------------------------


MODULE_FILE = "torch/nn/modules/module.py"
"""The file whose frames call the forwards of modules; they are left out of stacks."""

Structure = dict[str, dict[str, dict[str, str]]]
"""The sides of each module, each with its kind and the layouts of its tensors."""


class StructureCollector:
    """The tensors of each side of each module in the first step, as ``module_struct.json`` contains them."""

    def __init__(self) -> None:
        self._sides: dict[tuple[str, str], dict[str, str]] = {}

    def receive(self, identity: ValueIdentity, tensor: torch.Tensor | None) -> None:
        """Note the layout of a tensor of a side."""
        module, _, side = identity.name.rpartition(".")
        side, _, position = side.partition("_")
        shown_side = f"{side}_grad" if identity.task is Task.ACTIVATION_GRADIENT else side
        values = self._sides.setdefault((f"{identity.model_index}:{module}", shown_side), {})
        if tensor is not None or (position or "0") not in values:
            values[position or "0"] = _format_layout(tensor)

    def create_structure(self) -> Structure:
        """Return the structure."""
        structure: Structure = {}
        for (module, side), layouts in self._sides.items():
            if side == "output" and len(layouts) == 1:
                content = {"config": "tensor", "tensor": layouts["0"]}
            else:
                content = {"config": f"tuple[{len(layouts)}]", **layouts}
            structure.setdefault(module, {})[side] = content
        return structure


def _format_layout(tensor: torch.Tensor | None) -> str:
    return "None" if tensor is None else f"size={tuple(tensor.shape)}, dtype={tensor.dtype}"


class StackHooks(TrainingHooks):
    """Hooks that note the call stack of the first forward of each module.

    Args:
        models: The models.
        is_active: A function that returns True in steps that are observed.
        is_short: True to shorten names.
    """

    def __init__(self, models: Sequence[nn.Module], is_active: Callable[[], bool], *, is_short: bool) -> None:
        super().__init__()
        self._is_active = is_active
        self._stacks: dict[str, str] = {}
        belongs_to_recorder(Path(__file__).parents[1])
        namer = Namer(is_short=is_short)
        for model_index, model in enumerate(models):
            for name, module in model.named_modules():
                shown_name = f"{model_index}:{namer.choose_name(model_index, name)}"
                self._add_forward_hook(module, lambda *_, shown_name=shown_name: self._note(shown_name))

    def _note(self, name: str) -> None:
        if self._is_active() and name not in self._stacks:
            self._stacks[name] = "\n".join(
                line for line in list_stack_lines(stack_of(sys._getframe(3))) if MODULE_FILE not in line
            )

    def take(self) -> dict[str, str]:
        """Return the stacks, and remove the hooks if there are stacks."""
        if self._stacks:
            self.remove()
        return self._stacks
