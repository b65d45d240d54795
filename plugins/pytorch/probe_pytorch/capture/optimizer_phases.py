"""The phases of a training step behind the backward pass: clipping, and the step of the optimizer."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import wraps
from typing import Any

import numpy as np
import torch
from probe_recording.capture.attribute_patches import AttributePatches
from probe_recording.step_facts.step_phases import NO_STEP, StepPhase
from probe_recording.values.leaves import scalar
from torch.nn import utils
from torch.optim import Optimizer, lr_scheduler

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.backward_phases import BackwardPhaseCapture, clean_name, take_blocks
from probe_pytorch.capture.callers import wrap_with_caller
from probe_pytorch.session import TorchSession
from probe_pytorch.statistics import PLAIN

PHASES = "settings applied parameters_before parameters_after state_after"
"""Phases that every step of an optimizer shows."""

CLIPPING_ARGUMENTS = ("max_norm", "norm_type", "clip_value")
CLIPPING_FUNCTIONS = ("clip_grad_norm_", "clip_grad_value_")


class OptimizerPhaseCapture:
    """A capture of unscaling and clipping, and of what optimizers receive and leave.

    The hooks of optimizers stay in place while nothing is recorded, because a step of the recording may end
    inside one of them.

    Args:
        backward_phases: The capture of the phases before.

    Attributes:
        close: A function that removes the hooks of optimizers.
    """

    def __init__(self, backward_phases: BackwardPhaseCapture) -> None:
        self._backward_phases = backward_phases
        self._samples = ParameterSamples(())
        self._schedulers = Schedulers()
        self._patches = AttributePatches()
        self._handles: list[Any] = []
        self.close = weakref.finalize(self, _remove, self._handles)  # for a recorder that is never finished
        self.close.atexit = False

    def hook_optimizers(self) -> None:
        """Hook all optimizers, unless that is done; not inside a step of one."""
        if self._handles:
            return
        reference = weakref.ref(self)

        def record_before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            capture = reference()
            if capture is not None:
                capture._record_before_step(optimizer)

        def record_after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            capture = reference()
            if capture is not None:
                capture._record_after_step(optimizer)

        self._handles += compat_hooks.register_step_hooks(record_before, record_after)

    def install(self) -> None:
        """Hook optimizers, and wrap the functions that change gradients."""
        self.hook_optimizers()
        if self._patches:
            return
        for name in CLIPPING_FUNCTIONS:
            for holder in (utils, utils.clip_grad):
                self._patches.replace(holder, name, self._wrap_clipping(getattr(holder, name)))
        scaler = compat.get_grad_scaler()
        self._patches.replace(scaler, "unscale_", self._wrap_unscaling(scaler.unscale_))

    def complete(self, session: TorchSession) -> None:
        """Record the buffers if no optimizer stepped, and note what the step did not show."""
        step_phases = session.step_phases
        if step_phases is None:
            return
        if not any(step_phase.name == "buffers" for step_phase in step_phases.phases):
            self._backward_phases.run_guarded("buffers", self._record_buffers)
        for phase in PHASES.split():
            step_phases.explain_missing(phase, NO_STEP)

    def remove(self) -> None:
        """Restore the functions."""
        self._patches.restore_all()
        self._samples = ParameterSamples(())

    # -- unscaling and clipping --------------------------------------------------------------

    def _wrap_clipping(self, original: Any) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @wraps(original)
        def clip(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            stack = self._backward_phases.stack(frame)
            result = wrap_with_caller(frame, original)(*args, **kwargs)

            def record() -> None:
                bound_arguments = signature.bind(*args, **kwargs).arguments
                step_phase = self._backward_phases.add_phase("clipped", stack)
                step_phase.facts["function"] = original.__name__
                step_phase.facts.update(
                    _convert_settings(
                        {k: v for k, v in bound_arguments.items() if k in ("max_norm", "norm_type", "clip_value")}
                    )
                )
                if result is not None:
                    step_phase.values["total_norm"] = self._backward_phases.collect_leaf(result)

            self._backward_phases.run_guarded("clipped", record)
            return result

        return clip

    def _wrap_unscaling(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def unscale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            stack = self._backward_phases.stack(frame)

            def record() -> None:
                step_phase = self._backward_phases.add_phase("unscaled", stack)
                step_phase.values["scale"] = self._backward_phases.collect_leaf(float(scaler.get_scale()))

            if scaler.is_enabled():
                self._backward_phases.run_guarded("unscaled", record)
            return wrap_with_caller(frame, original)(scaler, *args, **kwargs)

        return unscale

    # -- optimizers --------------------------------------------------------------------------

    def _record_before_step(self, optimizer: Optimizer) -> None:
        step_phases = self._backward_phases
        stack = step_phases.stack(sys._getframe(1))

        def record() -> None:
            self._samples = ParameterSamples(())
            kind = type(optimizer).__name__
            settings = step_phases.add_phase("settings", stack)
            settings.facts.update(optimizer=kind, groups=self._list_settings(optimizer))
            settings.facts.update(_convert_settings(self._schedulers.read_facts(optimizer)))
            parameters = list(self._iterate_parameters(optimizer))
            gradients = [(name, parameter.grad) for name, parameter in parameters]
            self._add_phase("applied", kind).values.update(step_phases.collect_leaves(gradients))
            self._add_phase("parameters_before", kind).values.update(step_phases.collect_leaves(parameters))
            self._samples = ParameterSamples(
                parameter for (_, parameter), (_, gradient) in zip(parameters, gradients) if gradient is not None
            )
            if optimizer.state:
                self._state(optimizer, self._add_phase("state_before", kind))

        step_phases.run_guarded("before the step", record)

    def _record_after_step(self, optimizer: Optimizer) -> None:
        step_phases = self._backward_phases

        def record() -> None:
            kind = type(optimizer).__name__
            step_phase = self._add_phase("parameters_after", kind)
            parameters = list(self._iterate_parameters(optimizer))
            step_phase.values.update(
                step_phases.collect_leaves([(name, take_blocks(parameter)) for name, parameter in parameters])
            )
            step_phase.facts["unchanged"] = self._samples.count_unchanged(parameters)
            self._samples = ParameterSamples(())
            self._state(optimizer, self._add_phase("state_after", kind))
            self._record_buffers()

        step_phases.run_guarded("after the step", record)

    def _add_phase(self, phase: str, optimizer: str) -> StepPhase:
        step_phase = self._backward_phases.add_phase(phase)
        step_phase.facts["optimizer"] = optimizer
        return step_phase

    def _iterate_parameters(self, optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the parameters of an optimizer with their names in the model, or their places in it."""
        for group_number, group in enumerate(optimizer.param_groups):
            for number, parameter in enumerate(group["params"]):
                yield self._name(parameter, group_number, number), parameter

    def _name(self, parameter: torch.Tensor, group: int, number: int) -> str:
        return self._backward_phases.names.get(id(parameter), f"group{group}.{number}")

    def _list_settings(self, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Return the settings of each group of parameters, and their names."""
        groups = []
        for place, group in enumerate(optimizer.param_groups):
            names = [self._name(parameter, place, number) for number, parameter in enumerate(group["params"])]
            settings = _convert_settings({str(key): value for key, value in group.items() if key != "params"})
            groups.append({"settings": settings, "parameters": names})
        return groups

    def _state(self, optimizer: Optimizer, step_phase: StepPhase) -> None:
        """Add the state of each parameter to a phase."""
        states = [
            (f"{name}.{key}", take_blocks(value))
            for name, parameter in self._iterate_parameters(optimizer)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, (torch.Tensor, int, float))
        ]
        step_phase.values.update(self._backward_phases.collect_leaves(states))

    def _record_buffers(self) -> None:
        """Record the buffers of the models."""
        step_phase = None
        for number, model in enumerate(self._backward_phases.models):
            prefix = f"{number}." if number else ""
            for name, buffer in model.named_buffers():
                step_phase = step_phase or self._backward_phases.add_phase("buffers")
                step_phase.values[f"{prefix}{clean_name(name)}"] = self._backward_phases.collect_leaf(buffer)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _convert_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings as JSON: numbers, texts and lists of them; others by the names of their types."""
    return {key: _number(value) for key, value in settings.items()}


def _number(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_number(item) for item in value]
    if value is None or isinstance(value, (bool, float, str)):
        return value
    return scalar(value)["value"] if isinstance(value, int) else type(value).__name__


# -- elements of parameters that are compared before and after a step of an optimizer ---------------


MAX_SAMPLED_ELEMENTS = 256
"""Approximate number of elements of each parameter that are compared."""


class ParameterSamples:
    """Copies of some elements of parameters, to count those that a step leaves unchanged.

    The samples of one device and dtype are copied and compared together, which is faster.

    Args:
        parameters: The parameters, before the step.
    """

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        groups: dict[tuple[torch.device, torch.dtype], list[tuple[int, torch.Tensor]]] = {}
        for parameter in parameters:
            if (sample := _sample(parameter)) is not None:
                groups.setdefault((sample.device, sample.dtype), []).append((id(parameter), sample))
        self._groups = [
            (
                [(number, sample.numel()) for number, sample in group],
                torch.cat([sample for _, sample in group]),
            )
            for group in groups.values()
        ]

    def count_unchanged(self, parameters: Sequence[tuple[str, torch.Tensor]]) -> dict[str, list[int]]:
        """Return the number of unchanged elements and the number of compared elements of each parameter.

        Parameters that were not sampled before, or have another size now, are left out.

        Args:
            parameters: The names and parameters, after the step.
        """
        now = {id(parameter): _sample(parameter) for _, parameter in parameters}
        counts: dict[int, list[int]] = {}
        for sizes, before in self._groups:
            pairs = [
                (number, earlier, later)
                for (number, size), earlier in zip(sizes, before.split([size for _, size in sizes]))
                if (later := now.get(number)) is not None and later.numel() == size
            ]
            if not pairs:
                continue
            if len(pairs) < len(sizes):
                before = torch.cat([earlier for _, earlier, _ in pairs])
            is_equal = (before == torch.cat([later for _, _, later in pairs])).cpu().numpy()
            starts = np.cumsum([0, *(earlier.numel() for _, earlier, _ in pairs[:-1])])
            sums = np.add.reduceat(is_equal, starts, dtype=np.int64).tolist()
            for (number, earlier, _), count in zip(pairs, sums):
                counts[number] = [count, earlier.numel()]
        return {name: counts[id(value)] for name, value in parameters if id(value) in counts}


def _sample(parameter: torch.Tensor) -> torch.Tensor | None:
    """Return a view of some elements of a parameter, the same each time; None of one without elements."""
    local = getattr(parameter, "_local_tensor", parameter).detach()
    if type(local) not in PLAIN or local.layout is not torch.strided:
        return None
    count = local.numel()
    if not count or local.is_meta or compat.is_freed(local) or not local.is_contiguous():
        return None
    stride = max(1, count // MAX_SAMPLED_ELEMENTS)
    stride += stride > 1 and stride % 2 == 0  # an even one would meet few columns of a matrix
    return local.view(-1)[::stride]


# -- the states of learning rate schedulers, which no optimizer knows -------------------------------


KINDS = (lr_scheduler.LRScheduler, lr_scheduler.ReduceLROnPlateau)


class Schedulers:
    """The schedulers of the program, found once for each optimizer among all objects."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Optimizer, list[weakref.ref[Any]]] = weakref.WeakKeyDictionary()

    def read_facts(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the numbers in the state of each scheduler of an optimizer, by names such as ``last_epoch``.

        Names begin with ``scheduler.`` and the number of the scheduler.
        """
        if optimizer not in self._known:
            self._known[optimizer] = [weakref.ref(candidate) for candidate in _find_schedulers(optimizer)]
        facts: dict[str, Any] = {}
        for number, reference in enumerate(self._known[optimizer]):
            scheduler = reference()
            if scheduler is None:
                continue
            facts[f"scheduler.{number}.class"] = type(scheduler).__name__
            facts |= {
                f"scheduler.{number}.{name.strip('_')}": value
                for name, value in vars(scheduler).items()
                if _is_numeric(value)
            }
        return facts


def _find_schedulers(optimizer: Optimizer) -> list[Any]:
    """Return the schedulers of an optimizer in the order of their classes."""
    schedulers = [
        candidate
        for candidate in gc.get_objects()
        if issubclass(type(candidate), KINDS) and vars(candidate).get("optimizer") is optimizer
    ]
    return sorted(schedulers, key=lambda candidate: type(candidate).__name__)


def _is_numeric(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return len(value) <= 100 and all(isinstance(item, (int, float)) for item in value)
    return isinstance(value, (int, float))
