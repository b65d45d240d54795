"""Activations of PyTorch modules and their gradients, observed by hooks on the forwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from probe_check.monitor.pytorch_gradients import ModuleInputSource, attach_gradient_hooks
from probe_check.monitor.settings import SideSelection
from probe_check.monitor.tasks import Task

CHECKPOINT_FILE = "torch/utils/checkpoint.py"
RECOMPUTING_FUNCTIONS = frozenset({"recompute_fn", "unpack_hook"})
"""Functions of torch's checkpointing that run a forward again."""

Receive = Callable[[Task, int, str, int, "torch.Tensor | None"], None]
"""A callback for a tensor: its task, the number of its model, its name, the micro-batch, the tensor."""


@dataclass(slots=True, eq=False)
class ObservedModule:
    """A module whose activations are observed.

    Attributes:
        model: The number of its model.
        name: The name in files.
        sides: The sides to observe; empty for all.
        forward_count: Number of forward passes in the step.
        backward_count: Number of backward passes in the step.
        sources: The places of the inputs of the forwards that are running, with their positions.
    """

    model: int
    name: str
    sides: SideSelection
    forward_count: int = 0
    backward_count: int = 0
    sources: list[list[tuple[int, ModuleInputSource]]] = field(default_factory=list)

    def selects(self, side: str, position: int) -> bool:
        """Return True if a tensor at a position of a side is observed."""
        if not self.sides:
            return True
        return side in self.sides and self.sides[side] in (None, position)


class ModuleHook:
    """A hook that is left out of copies and pickles of its module."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> None:
        """Call the function."""
        self._function(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return _get_ignoring_hook, ()


def _get_ignoring_hook() -> Callable[..., None]:
    return ignore


def ignore(*_: Any) -> None:
    """Do nothing; stands for a hook in a copy of a module."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The conditions under which hooks observe the modules of a training.

    Attributes:
        is_active: A function that returns True in steps that are observed.
        fail: A receiver of errors, which must not reach the training.
        micro_steps: Number of micro-batches of a step.
    """

    is_active: Callable[[], bool]
    fail: Callable[[Exception], None]
    micro_steps: int


class ModuleHooks:
    """The hooks on the modules of a training.

    Args:
        receive: The receiver of tensors.
        observation: The conditions of the observation.
    """

    def __init__(self, receive: Receive, observation: Observation) -> None:
        self._receive = receive
        self._observation = observation
        self._modules: list[ObservedModule] = []
        self._handles: list[Any] = []
        self._observes_forward = self._observes_backward = False

    def install(self, modules: Sequence[tuple[nn.Module, ObservedModule]], *, forward: bool, backward: bool) -> None:
        """Hook modules.

        Args:
            modules: The modules.
            forward: True to observe inputs and outputs.
            backward: True to observe the gradients of inputs and outputs.
        """
        self._observes_forward, self._observes_backward = forward, backward
        for module, observed in modules:
            self._modules.append(observed)
            before = ModuleHook(lambda _, args, kwargs, each=observed: self._note_sources(each, args, kwargs))
            after = ModuleHook(
                lambda m, args, kwargs, out, each=observed: self._observe_forward(m, each, args, kwargs, out)
            )
            if backward:
                self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            self._handles.append(module.register_forward_hook(after, with_kwargs=True))

    def remove(self) -> None:
        """Remove the hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._modules.clear()

    def end_step(self) -> None:
        """Count micro-batches from 0 again."""
        for module in self._modules:
            module.forward_count = module.backward_count = 0

    def _note_sources(self, observed: ObservedModule, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        sources: list[tuple[int, ModuleInputSource]] = []
        if self._observation.is_active() and torch.is_grad_enabled():
            inputs = list_tensors(args, kwargs)
            sources = [(i, ModuleInputSource(tensor)) for i, tensor in enumerate(inputs) if tensor.requires_grad]
        observed.sources.append(sources)

    def _observe_forward(
        self,
        module: nn.Module,
        observed: ObservedModule,
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
            if self._observes_forward and not is_recomputing():
                number, observed.forward_count = _count_micro_batch(
                    observed.forward_count, self._observation.micro_steps
                )
                self._take(observed, "input", inputs, number)
                self._take(observed, "output", outputs, number)
            if self._observes_backward and torch.is_grad_enabled():
                self._expect_gradients(observed, sources, len(inputs), outputs)
        except Exception as error:  # of the framework: the forward must go on
            self._observation.fail(error)

    def _take(self, observed: ObservedModule, side: str, values: Sequence[Any], number: int) -> None:
        for position, name in enumerate(format_value_names(observed.name, side, len(values))):
            if observed.selects(side, position):
                value = values[position]
                tensor = value if isinstance(value, torch.Tensor) else None
                self._receive(Task.ACTIVATION, observed.model, name, number, tensor)

    def _expect_gradients(
        self,
        observed: ObservedModule,
        sources: Sequence[tuple[int, ModuleInputSource]],
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
            self._receive(Task.ACTIVATION_GRADIENT, observed.model, name, number, tensor)

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
        hooks: ModuleHooks,
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
