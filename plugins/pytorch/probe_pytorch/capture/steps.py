"""The phases of a training step behind the backward pass: clipping, and the step of the optimizer."""

from __future__ import annotations

import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import torch
from probe_recording import Rung, scalar
from torch.nn import utils
from torch.optim import Optimizer

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.callers import called_from
from probe_pytorch.capture.ladder import NO_STEP, LadderCapture, part_of, plain
from probe_pytorch.capture.samples import ParameterSamples
from probe_pytorch.capture.schedulers import Schedulers
from probe_pytorch.session import Session

PHASES = "settings applied parameters_before parameters_after state_after"
"""Phases that every step of an optimizer shows."""

LIMITS = ("max_norm", "norm_type", "clip_value")
CLIPPING = ("clip_grad_norm_", "clip_grad_value_")


class StepCapture:
    """A capture of unscaling and clipping, and of what optimizers take in and leave.

    The hooks of optimizers stay in place while nothing is recorded, because a step of the recording may end
    inside one of them.

    Args:
        ladder: The capture of the phases before.

    Attributes:
        close: A function that removes the hooks of optimizers.
    """

    def __init__(self, ladder: LadderCapture) -> None:
        self._ladder = ladder
        self._samples = ParameterSamples(())
        self._schedulers = Schedulers()
        self._patched: list[tuple[Any, str, Any, Any]] = []
        self._handles: list[Any] = []
        self.close = weakref.finalize(self, _remove, self._handles)  # for a recorder that is never finished
        self.close.atexit = False

    def watch(self) -> None:
        """Hook all optimizers, unless that is done; not inside a step of one."""
        if self._handles:
            return
        own = weakref.ref(self)

        def before(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            capture = own()
            if capture is not None:
                capture._before(optimizer)

        def after(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            capture = own()
            if capture is not None:
                capture._after(optimizer)

        self._handles += compat_hooks.register_step_hooks(before, after)

    def begin(self) -> None:
        """Hook optimizers, and wrap the functions that change gradients."""
        self.watch()
        if self._patched:
            return
        for name in CLIPPING:
            for holder in (utils, utils.clip_grad):
                self._patch(holder, name, self._clipping(getattr(holder, name)))
        scaler = compat.grad_scaler()
        self._patch(scaler, "unscale_", self._unscaling(scaler.unscale_))

    def _patch(self, holder: Any, name: str, wrapper: Callable[..., Any]) -> None:
        self._patched.append((holder, name, wrapper, getattr(holder, name)))
        setattr(holder, name, wrapper)

    def end(self, session: Session) -> None:
        """Record the buffers if no optimizer stepped, and note what the step did not show."""
        ladder = session.ladder
        if ladder is None:
            return
        if not any(rung.phase == "buffers" for rung in ladder.rungs):
            self._ladder.guarded("buffers", self._buffers)
        for phase in PHASES.split():
            ladder.lacks(phase, NO_STEP)

    def remove(self) -> None:
        """Restore the functions."""
        patched, self._patched = self._patched, []
        for holder, name, wrapper, original in reversed(patched):
            if getattr(holder, name) is wrapper:
                setattr(holder, name, original)
        self._samples = ParameterSamples(())

    # -- unscaling and clipping --------------------------------------------------------------

    def _clipping(self, original: Any) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @wraps(original)
        def clip(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            stack = self._ladder.stack(frame)
            result = called_from(frame, original)(*args, **kwargs)

            def record() -> None:
                given = signature.bind(*args, **kwargs).arguments
                rung = self._ladder.rung("clipped", stack)
                rung.facts["function"] = original.__name__
                rung.facts.update(
                    _numbers({k: v for k, v in given.items() if k in ("max_norm", "norm_type", "clip_value")})
                )
                if result is not None:
                    rung.values["total_norm"] = self._ladder.leaf(result)

            self._ladder.guarded("clipped", record)
            return result

        return clip

    def _unscaling(self, original: Any) -> Callable[..., Any]:
        @wraps(original)
        def unscale(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            stack = self._ladder.stack(frame)

            def record() -> None:
                rung = self._ladder.rung("unscaled", stack)
                rung.values["scale"] = self._ladder.leaf(float(scaler.get_scale()))

            if scaler.is_enabled():
                self._ladder.guarded("unscaled", record)
            return called_from(frame, original)(scaler, *args, **kwargs)

        return unscale

    # -- optimizers --------------------------------------------------------------------------

    def _before(self, optimizer: Optimizer) -> None:
        ladder = self._ladder
        stack = ladder.stack(sys._getframe(1))

        def record() -> None:
            self._samples = ParameterSamples(())
            kind = type(optimizer).__name__
            settings = ladder.rung("settings", stack)
            settings.facts.update(optimizer=kind, groups=self._settings(optimizer))
            settings.facts.update(_numbers(self._schedulers.facts(optimizer)))
            parameters = list(self._parameters(optimizer))
            gradients = [(name, parameter.grad) for name, parameter in parameters]
            self._rung("applied", kind).values.update(ladder.leaves(gradients))
            self._rung("parameters_before", kind).values.update(ladder.leaves(parameters))
            self._samples = ParameterSamples(
                parameter
                for (_, parameter), (_, gradient) in zip(parameters, gradients)
                if gradient is not None
            )
            if optimizer.state:
                self._state(optimizer, self._rung("state_before", kind))

        ladder.guarded("before the step", record)

    def _after(self, optimizer: Optimizer) -> None:
        ladder = self._ladder

        def record() -> None:
            kind = type(optimizer).__name__
            rung = self._rung("parameters_after", kind)
            parameters = list(self._parameters(optimizer))
            rung.values.update(ladder.leaves([(name, part_of(parameter)) for name, parameter in parameters]))
            rung.facts["unchanged"] = self._samples.count_unchanged(parameters)
            self._samples = ParameterSamples(())
            self._state(optimizer, self._rung("state_after", kind))
            self._buffers()

        ladder.guarded("after the step", record)

    def _rung(self, phase: str, optimizer: str) -> Rung:
        rung = self._ladder.rung(phase)
        rung.facts["optimizer"] = optimizer
        return rung

    def _parameters(self, optimizer: Optimizer) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the parameters of an optimizer with their names in the model, or their places in it."""
        for group_number, group in enumerate(optimizer.param_groups):
            for number, parameter in enumerate(group["params"]):
                yield self._name(parameter, group_number, number), parameter

    def _name(self, parameter: torch.Tensor, group: int, number: int) -> str:
        return self._ladder.names.get(id(parameter), f"group{group}.{number}")

    def _settings(self, optimizer: Optimizer) -> list[dict[str, Any]]:
        """Return the settings of each group of parameters, and their names."""
        groups = []
        for place, group in enumerate(optimizer.param_groups):
            names = [self._name(parameter, place, number) for number, parameter in enumerate(group["params"])]
            settings = _numbers({str(key): value for key, value in group.items() if key != "params"})
            groups.append({"settings": settings, "parameters": names})
        return groups

    def _state(self, optimizer: Optimizer, rung: Rung) -> None:
        """Add the state of each parameter to a rung."""
        states = [
            (f"{name}.{key}", part_of(value))
            for name, parameter in self._parameters(optimizer)
            for key, value in optimizer.state.get(parameter, {}).items()
            if isinstance(value, (torch.Tensor, int, float))
        ]
        rung.values.update(self._ladder.leaves(states))

    def _buffers(self) -> None:
        """Record the buffers of the models."""
        rung = None
        for number, model in enumerate(self._ladder.models):
            prefix = f"{number}." if number else ""
            for name, buffer in model.named_buffers():
                rung = rung or self._ladder.rung("buffers")
                rung.values[f"{prefix}{plain(name)}"] = self._ladder.leaf(buffer)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()


def _numbers(settings: dict[str, Any]) -> dict[str, Any]:
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
