"""Parameters of PyTorch models: their values, gradients and moments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from probe_recording.messages import note
from torch import nn

from probe_check.monitor.names import Namer, is_inside, list_spellings
from probe_check.monitor.pytorch.hooks import Observation, TrainingHooks
from probe_check.monitor.pytorch.measurement import get_local_shard
from probe_check.monitor.pytorch.values import StepValues, ValueIdentity
from probe_check.monitor.settings import MonitorSettings
from probe_check.monitor.tasks import Task
from probe_core.errors import UserError

STATE_FLAGS = ("mv_distribution", "mg_direction", "ur_distribution")
"""Fields that need the state of the optimizer."""


@dataclass(slots=True, eq=False)
class ObservedParameter:
    """A parameter that is observed.

    Attributes:
        model_index: The number of its model.
        name: The name in files.
        tensor: The parameter.
        is_duplicate: True if another rank writes its reduced gradient.
        micro_step: Number of micro-batches that reached it in the step.
    """

    model_index: int
    name: str
    tensor: nn.Parameter
    is_duplicate: bool
    micro_step: int = 0

    def identify(self, task: Task, micro_step: int | None = None, tag: str = "") -> ValueIdentity:
        """Return the identity of a value of the parameter."""
        return ValueIdentity(task, self.model_index, self.name, micro_step, tag)


def select_parameters(
    models: Sequence[nn.Module], settings: MonitorSettings, groups: Mapping[str, Any]
) -> Iterator[ObservedParameter]:
    """Yield the parameters that need a gradient and are selected by ``targets``.

    Args:
        models: The models.
        settings: The configuration.
        groups: The process groups ``dp_group`` and ``tp_group``.
    """
    namer = Namer(is_short=settings.has_short_names)
    targets = settings.targets
    for model_index, model in enumerate(models):
        for name, tensor in model.named_parameters():
            if tensor.requires_grad and (not targets or is_inside(list_spellings(model_index, name), targets)):
                shown_name = namer.choose_name(model_index, name)
                yield ObservedParameter(model_index, shown_name, tensor, _is_duplicate(tensor, groups))


def _is_duplicate(tensor: nn.Parameter, groups: Mapping[str, Any]) -> bool:
    data, parallel = groups.get("dp_group"), groups.get("tp_group")
    is_whole = parallel is not None and not getattr(tensor, "tensor_model_parallel", False)
    if is_whole and torch.distributed.get_rank(parallel):
        return True
    return data is not None and torch.distributed.get_rank(data) != 0


class ParameterHooks(TrainingHooks):
    """Hooks on parameters, and measurements of their gradients and of the state of their optimizer.

    Args:
        parameters: The parameters.
        optimizer: The optimizer.
        settings: The configuration.
        values: The values of the step, to which measurements are added.
        observation: The conditions of the observation.
        has_main_grad: True to observe ``main_grad`` of parameters that have one.

    Raises:
        UserError: The optimizer keeps gradients and moments that belong to no parameter.
    """

    def __init__(
        self,
        parameters: Sequence[ObservedParameter],
        optimizer: Any,
        settings: MonitorSettings,
        values: StepValues,
        observation: Observation,
        *,
        has_main_grad: bool,
    ) -> None:
        super().__init__()
        self._parameters = parameters
        self._optimizer = optimizer
        self._settings = settings
        self._measure = values.measure
        self._observation = observation
        self._has_main_grad = has_main_grad
        self._nodes: list[Any] = []
        self._is_each = settings.is_on("monitor_mbs_grad")
        self._has_states = any(map(settings.is_on, STATE_FLAGS))
        self._histograms: dict[str, torch.Tensor] = {}
        if self._has_states or settings.is_on("wg_distribution"):
            refuse_optimizer(optimizer)

    # -- unreduced gradients ---------------------------------------------------------------

    def install(self) -> None:
        """Measure the gradient of each parameter when the backward pass has added to it."""
        has_sharded = False
        for parameter in self._parameters:
            if hasattr(parameter.tensor, "to_local"):
                has_sharded = True
            else:
                self._handles.append(self._hook(parameter, partial(self._receive_gradient, parameter)))
        if has_sharded:
            note(
                "probe: grad_unreduced is not written for sharded parameters, whose gradients are reduced "
                "before a hook receives them."
            )

    def _hook(self, parameter: ObservedParameter, hook: Callable[..., None]) -> Any:
        tensor = parameter.tensor
        if not self._has_main_grad or not hasattr(tensor, "main_grad"):
            return tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        node: Any = tensor.expand_as(tensor).grad_fn
        accumulator = node.next_functions[0][0]  # Megatron adds to main_grad in an earlier hook of this node
        self._nodes.append(accumulator)  # the hook lives as long as the node
        return accumulator.register_hook(hook)

    def _receive_gradient(self, parameter: ObservedParameter, *_: Any) -> None:
        number, parameter.micro_step = parameter.micro_step, parameter.micro_step + 1
        is_each, observation = self._is_each, self._observation
        if not observation.is_active() or not (is_each or parameter.micro_step == observation.micro_steps):
            return
        try:
            gradient = self._find_gradient(parameter)
            if gradient is not None:
                self._measure(parameter.identify(Task.GRADIENT_UNREDUCED, number if is_each else None), gradient)
        except Exception as error:  # of the framework: the backward must go on
            observation.fail(error)

    def _find_gradient(self, parameter: ObservedParameter) -> torch.Tensor | None:
        return find_gradient(parameter.tensor, has_main_grad=self._has_main_grad)

    def remove(self) -> None:
        """Remove the hooks."""
        super().remove()
        self._nodes.clear()

    def end_step(self) -> None:
        """Count micro-batches from 0 again."""
        for parameter in self._parameters:
            parameter.micro_step = 0

    # -- steps -----------------------------------------------------------------------------

    def measure_before(self, rank: int) -> None:
        """Measure gradients, moments and parameters before a step."""
        if self._settings.is_on("param_distribution"):
            self.measure_parameters(Task.PARAMETER_BEFORE)
        if self._has_states:
            states = OptimizerStates(self._optimizer)
            for parameter in self._parameters:
                self._measure_states(parameter, states.find_moments(parameter.tensor), rank)
        self.measure_gradients()

    def measure_gradients(self) -> None:
        """Measure the gradients that the optimizer uses."""
        if not self._settings.is_on("wg_distribution"):
            return
        for parameter in self._parameters:
            if not parameter.is_duplicate and (gradient := self._find_gradient(parameter)) is not None:
                self._measure(parameter.identify(Task.GRADIENT_REDUCED), gradient)

    def measure_parameters(self, task: Task) -> None:
        """Measure the parameters; those without elements are left out."""
        for parameter in self._parameters:
            if parameter.tensor.numel():
                self._measure(parameter.identify(task), parameter.tensor)

    def _measure_states(self, parameter: ObservedParameter, moments: Moments | None, rank: int) -> None:
        settings = self._settings
        if moments is not None and settings.is_on("mv_distribution"):
            for task, tensor in ((Task.FIRST_MOMENT, moments.first), (Task.SECOND_MOMENT, moments.second)):
                if tensor is not None:
                    self._measure(parameter.identify(task), tensor)
        if settings.is_on("mg_direction") and (gradient := self._find_gradient(parameter)) is not None:
            first = None if moments is None else moments.first
            share = torch.ones(()) if first is None else compute_sign_agreement(gradient, first)
            self._measure(parameter.identify(Task.OTHER, tag="mg_direction"), share)
        if moments is not None and settings.is_on("ur_distribution"):
            for tag, values in zip(("adam_update", "adam_ratio"), moments.compute_update_and_ratio() or ()):
                self._histograms[f"{parameter.model_index}:{parameter.name}/rank{rank}/{tag}"] = values

    def take_histograms(self) -> dict[str, torch.Tensor]:
        """Return the updates whose distributions are written, by their tags, and forget them."""
        histograms, self._histograms = self._histograms, {}
        return histograms


# -- the gradient and the moments of each parameter, as an optimizer of PyTorch stores them ---------


REFUSED_OPTIMIZERS = ("DeepSpeedZeroOptimizer", "DeepSpeedZeroOptimizer_Stage3", "BF16_Optimizer")
"""Classes of DeepSpeed, which keep gradients and moments in flat partitions."""
_GROUP_ATTRIBUTES = (
    ("float16_groups", "fp32_from_float16_groups"),
    ("model_float16_groups", "shard_fp32_from_float16_groups"),
)
"""Attributes of Megatron's optimizers: groups of half parameters, and of the float32 copies they update."""


@dataclass(frozen=True, slots=True)
class Moments:
    """The moments of a parameter.

    Attributes:
        first: ``exp_avg``; None if the optimizer has none.
        second: ``exp_avg_sq``; None if the optimizer has none.
        step: The number of steps that they contain; None if it is not known.
        betas: The decay rates.
        epsilon: The term added to the denominator.
    """

    first: torch.Tensor | None
    second: torch.Tensor | None
    step: float | None
    betas: tuple[float, float]
    epsilon: float

    def compute_update_and_ratio(self) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Return the update of Adam without its learning rate, with and without epsilon; None if unknown."""
        if self.first is None or self.second is None or not self.step:
            return None
        first = self.first / (1 - self.betas[0] ** self.step)
        root = torch.sqrt(self.second / (1 - self.betas[1] ** self.step))
        return first / (root + self.epsilon), first / root


def refuse_optimizer(optimizer: Any) -> None:
    """Raise a UserError if gradients and moments of an optimizer belong to no parameter.

    Raises:
        UserError: The optimizer is one of DeepSpeed.
    """
    name = type(optimizer).__name__
    if name in REFUSED_OPTIMIZERS:
        raise UserError(
            f"The optimizer {name} of DeepSpeed keeps gradients and moments in flat partitions, which the "
            "monitor does not divide into parameters.",
            'Set "wg_distribution", "mv_distribution" and "mg_direction" to false; activations and '
            "parameters can be monitored.",
        )


def find_gradient(parameter: torch.Tensor, *, has_main_grad: bool) -> torch.Tensor | None:
    """Return the gradient that an optimizer uses: ``main_grad`` if the parameter has one, else ``grad``."""
    main = getattr(parameter, "main_grad", None) if has_main_grad else None
    gradient = parameter.grad if main is None else main
    return None if gradient is None else get_local_shard(gradient)


class OptimizerStates:
    """The states of an optimizer, found through the wrappers of Megatron.

    Args:
        optimizer: The optimizer.
    """

    def __init__(self, optimizer: Any) -> None:
        self._parts = list(_iterate_parts(optimizer))
        self._copies: dict[int, torch.Tensor] = {}
        for part in self._parts:
            for model_groups, copy_groups in _GROUP_ATTRIBUTES:
                self._copies |= _map_copies(getattr(part, model_groups, ()), getattr(part, copy_groups, ()))

    def find_moments(self, parameter: torch.Tensor) -> Moments | None:
        """Return the moments of a parameter; None before its first step."""
        parameter = self._copies.get(id(parameter), parameter)
        for part in self._parts:
            holder = part if hasattr(part, "state") else getattr(part, "optimizer", None)
            states: Mapping[Any, Any] = getattr(holder, "state", {})
            if parameter in states:
                return _read_moments(states[parameter], holder)
        return None


def _iterate_parts(optimizer: Any) -> Iterator[Any]:
    yield from getattr(optimizer, "chained_optimizers", None) or (optimizer,)


def _map_copies(model_groups: Sequence[Any], copy_groups: Sequence[Any]) -> dict[int, torch.Tensor]:
    return {
        id(parameter): copy
        for group, copies in zip(model_groups or (), copy_groups or ())
        for parameter, copy in zip(group, copies)
        if copy is not None
    }


def _read_moments(state: Mapping[str, Any], optimizer: Any) -> Moments:
    groups = getattr(optimizer, "param_groups", None) or [{}]
    defaults = getattr(optimizer, "defaults", {})
    step = state.get("step", groups[0].get("step"))
    first, second = (
        None if (tensor := state.get(name)) is None else get_local_shard(tensor) for name in ("exp_avg", "exp_avg_sq")
    )
    return Moments(
        first=first,
        second=second,
        step=None if step is None else float(step),
        betas=tuple(defaults.get("betas", (0.9, 0.999)))[:2],
        epsilon=float(defaults.get("eps", 1e-8)),
    )


def compute_sign_agreement(gradient: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
    """Return the share of elements whose gradient and first moment have the same sign.

    An element that is zero in one of them counts as half. An empty gradient agrees.
    """
    if not moment.numel():
        return torch.ones(())
    total = (gradient.sign() * moment.to(gradient.dtype).sign()).sum(dtype=torch.float32)
    return (total / moment.numel() + 1) / 2
