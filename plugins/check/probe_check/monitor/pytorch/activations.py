"""Activations of PyTorch modules and their gradients, observed by hooks on the forwards."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from probe_recording.capture.gathering import GradientCallback, GradientGatherer, GradientSource, hook_call_nodes
from torch import nn

from probe_check.monitor.names import Namer, list_spellings
from probe_check.monitor.pytorch.hooks import ModuleHook, Observation, TrainingHooks
from probe_check.monitor.pytorch.values import ValueIdentity
from probe_check.monitor.settings import MonitorSettings, SideSelection
from probe_check.monitor.tasks import Task

CHECKPOINT_FILE = "torch/utils/checkpoint.py"
RECOMPUTING_FUNCTIONS = frozenset({"recompute_fn", "unpack_hook"})
"""Functions of torch's checkpointing that run a forward again."""

SKIPPED_CLASSES = ("FullyShardedDataParallel",)
"""Classes of wrappers whose activations are those of the module in them."""

Receive = Callable[[ValueIdentity, "torch.Tensor | None"], None]
"""A receiver of tensors; None stands for a value that is not a tensor, or a gradient that does not exist."""


@dataclass(slots=True, eq=False)
class ObservedModule:
    """A module whose activations are observed.

    Attributes:
        model_index: The number of its model.
        name: The name in files.
        sides: The sides to observe; empty for all.
        forward_count: Number of forward passes in the step.
        backward_count: Number of backward passes in the step.
        sources: The places of the inputs of the forwards that are running, with their positions.
    """

    model_index: int
    name: str
    sides: SideSelection
    forward_count: int = 0
    backward_count: int = 0
    sources: list[list[tuple[int, GradientSource]]] = field(default_factory=list)

    def selects(self, side: str, position: int) -> bool:
        """Return True if a tensor at a position of a side is observed."""
        if not self.sides:
            return True
        return side in self.sides and self.sides[side] in (None, position)


def select_modules(
    models: Sequence[nn.Module], settings: MonitorSettings, *, takes_all: bool
) -> Iterator[tuple[nn.Module, ObservedModule]]:
    """Yield the modules that ``targets`` selects; all modules if ``takes_all`` is set."""
    namer = Namer(is_short=settings.has_short_names)
    takes_others = takes_all or settings.is_on("all_xy") or not settings.targets
    for model_index, model in enumerate(models):
        for name, module in model.named_modules():
            shown_name = namer.choose_name(model_index, name)
            sides = None if takes_all else _find_sides(settings, model_index, name)
            if type(module).__name__ not in SKIPPED_CLASSES and (sides is not None or takes_others):
                yield module, ObservedModule(model_index, shown_name, sides or {})


def _find_sides(settings: MonitorSettings, model_index: int, name: str) -> SideSelection | None:
    targets = settings.targets
    return next((targets[spelling] for spelling in list_spellings(model_index, name) if spelling in targets), None)


class ActivationHooks(TrainingHooks):
    """The hooks on the modules of a training.

    Args:
        receive: The receiver of tensors.
        observation: The conditions of the observation.
        has_forward: True to observe inputs and outputs.
        has_backward: True to observe the gradients of inputs and outputs.
    """

    def __init__(self, receive: Receive, observation: Observation, *, has_forward: bool, has_backward: bool) -> None:
        super().__init__()
        self._receive = receive
        self._observation = observation
        self._has_forward, self._has_backward = has_forward, has_backward
        self._modules: list[ObservedModule] = []

    def install(self, modules: Sequence[tuple[nn.Module, ObservedModule]]) -> None:
        """Hook modules."""
        for module, observed in modules:
            self._modules.append(observed)
            if self._has_backward:
                note_sources = ModuleHook(functools.partial(self._note_sources, observed))
                self._handles.append(module.register_forward_pre_hook(note_sources, with_kwargs=True))
            self._add_forward_hook(module, functools.partial(self._observe_forward, observed), with_kwargs=True)

    def end_step(self) -> None:
        """Count micro-batches from 0 again."""
        for module in self._modules:
            module.forward_count = module.backward_count = 0

    def _note_sources(
        self, observed: ObservedModule, _: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        sources: list[tuple[int, GradientSource]] = []
        if self._observation.is_active() and torch.is_grad_enabled():
            inputs = list_tensors(args, kwargs)
            sources = [(i, GradientSource(tensor)) for i, tensor in enumerate(inputs) if tensor.requires_grad]
        observed.sources.append(sources)

    def _observe_forward(
        self,
        observed: ObservedModule,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        output: Any,
    ) -> None:
        sources = observed.sources.pop() if observed.sources else []
        if not module.training or not self._observation.is_active():
            return
        try:
            inputs = list_tensors(args, kwargs)
            outputs = list_values(output)
            if self._has_forward and not is_recomputing():
                number, observed.forward_count = _count_micro_batch(
                    observed.forward_count, self._observation.micro_steps
                )
                self._take(observed, "input", inputs, number)
                self._take(observed, "output", outputs, number)
            if self._has_backward and torch.is_grad_enabled():
                self._expect_gradients(observed, sources, len(inputs), outputs)
        except Exception as error:  # of the framework: the forward must go on
            self._observation.fail(error)

    def _take(self, observed: ObservedModule, side: str, values: Sequence[Any], number: int) -> None:
        for position, name in enumerate(format_value_names(observed.name, side, len(values))):
            if observed.selects(side, position):
                value = values[position]
                tensor = value if isinstance(value, torch.Tensor) else None
                self._receive(ValueIdentity(Task.ACTIVATION, observed.model_index, name, number), tensor)

    def _expect_gradients(
        self,
        observed: ObservedModule,
        sources: Sequence[tuple[int, GradientSource]],
        input_count: int,
        outputs: Sequence[Any],
    ) -> None:
        gradients = _ModuleGradients(self, observed, [i for i, _ in sources], input_count, len(outputs))
        attach_gradient_hooks(outputs, [source for _, source in sources], gradients.take)

    def receive_gradient(
        self, observed: ObservedModule, side: str, position: int, count: int, number: int, tensor: Any
    ) -> None:
        """Pass on the gradient at a position of a side; None for one that does not exist."""
        if observed.selects(f"{side}_grad", position):
            name = format_value_names(observed.name, side, count)[position]
            self._receive(ValueIdentity(Task.ACTIVATION_GRADIENT, observed.model_index, name, number), tensor)

    def begin_backward(self, observed: ObservedModule) -> int | None:
        """Return the number of the micro-batch of a backward pass; None in a step that is not observed."""
        if not self._observation.is_active():
            return None
        number, observed.backward_count = _count_micro_batch(observed.backward_count, self._observation.micro_steps)
        return number

    def fail(self, error: Exception) -> None:
        """Report an error of a backward pass."""
        self._observation.fail(error)


class _ModuleGradients:
    """The gradients of one forward pass; those that exist replace the NaN of all others."""

    def __init__(
        self,
        hooks: ActivationHooks,
        observed: ObservedModule,
        positions: Sequence[int],
        input_count: int,
        output_count: int,
    ) -> None:
        self._hooks = hooks
        self._observed = observed
        self._positions = positions
        self._counts = {"input": input_count, "output": output_count}
        self._number: int | None = None
        self._has_begun = False

    def take(self, side: str, position: int, gradient: Any, is_last: bool) -> None:
        """Receive a gradient; ``side`` is ``input`` for that of an output."""
        try:
            if not self._has_begun:
                self._has_begun = True
                self._begin()
            if self._number is None or gradient is None:
                return
            shown, index = ("output", position) if side == "input" else ("input", self._positions[position])
            count = self._counts[shown]
            self._hooks.receive_gradient(self._observed, shown, index, count, self._number, gradient)
        except Exception as error:  # of the framework: the backward must go on
            self._hooks.fail(error)

    def _begin(self) -> None:
        self._number = number = self._hooks.begin_backward(self._observed)
        if number is None:
            return
        for side, count in self._counts.items():
            for index in range(count):
                self._hooks.receive_gradient(self._observed, side, index, count, number, None)


def list_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Return the tensors among the arguments, positional ones first."""
    return [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]


def list_values(output: Any) -> Sequence[Any]:
    """Return the results of a forward: the items of a tuple or list, the values of a mapping, or a tensor."""
    if isinstance(output, torch.Tensor):
        return (output,)
    if isinstance(output, Mapping):
        return tuple(output.values())
    return tuple(output) if isinstance(output, (tuple, list)) else ()


def format_value_names(module: str, side: str, count: int) -> list[str]:
    """Return the names of the values of one side, numbered if there are several."""
    return [f"{module}.{side}"] if count == 1 else [f"{module}.{side}_{i}" for i in range(count)]


def is_recomputing() -> bool:
    """Return True if activation checkpointing runs the present forward a second time."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_name in RECOMPUTING_FUNCTIONS and code.co_filename.replace("\\", "/").endswith(CHECKPOINT_FILE):
            return True
        if code.co_name == "backward" and code.co_varnames[:1] == ("ctx",):
            return True  # an autograd function that runs a forward in its backward
        frame = frame.f_back
    return False


def _count_micro_batch(count: int, micro_steps: int) -> tuple[int, int]:
    """Return the number of a micro-batch, and the count after it, which restarts at 0."""
    return count, (count + 1) % micro_steps


class GradientSum(GradientGatherer):
    """A collector that adds up the gradients of several uses of an input."""

    def _add_gradient(self, total: torch.Tensor | None, gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.detach()
        return gradient.clone() if total is None else total + gradient


def attach_gradient_hooks(
    outputs: Sequence[Any], sources: Sequence[GradientSource], receiver: GradientCallback
) -> None:
    """Report the gradients of a forward pass when they arrive.

    Args:
        outputs: The results of the module.
        sources: The places of its inputs that need a gradient.
        receiver: The receiver. Its sides are ``input`` for the gradient of an output, and ``output`` for that
            of an input, with their positions.
    """
    source_nodes = {source.node for source in sources}
    tensors = [
        (position, tensor)
        for position, tensor in enumerate(outputs)
        if isinstance(tensor, torch.Tensor) and tensor.grad_fn is not None
    ]
    hook_call_nodes(
        GradientSum(receiver, len(sources)),
        tensors,
        sources,
        lambda node: bool(sources) and node not in source_nodes,
        torch.Tensor.register_hook,
    )
