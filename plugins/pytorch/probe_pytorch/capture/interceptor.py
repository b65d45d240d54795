"""Interception of API calls for tasks of other plugins, by the captures of the recorder (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import torch
from probe_recording.api import CallInterceptor, Config, InterceptedCall
from probe_recording.capture.gathering import GradientCollector
from probe_recording.capture.interceptors import ActiveSession, GradientReceiver
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack

from probe_pytorch import compat, compat_conditions, generators
from probe_pytorch.capture.call_recorder import TorchCallRecorder
from probe_pytorch.capture.eager_code import EagerSwitch
from probe_pytorch.capture.function_patches import Patches
from probe_pytorch.capture.functions import FunctionCapture
from probe_pytorch.capture.gradients import attach_walked, list_sources, list_tensors
from probe_pytorch.capture.names import load_names


class Interceptor(CallInterceptor):
    """An interceptor of the calls that the recorder records at level L1, with the same names.

    Collectives, custom operators and autograd functions are not intercepted, because they may communicate
    with other ranks. Compiled code runs uncompiled while calls are intercepted, as for the recorder.

    Args:
        config: The settings; ``support_wrap_ops`` and ``risk_level`` select the functions.
    """

    def __init__(self, config: Config) -> None:
        self._threads = Threads()
        names = load_names(config.wrap_ops, config.risk_level)
        self._calls = _CallForwarder(self._threads)
        self._functions = FunctionCapture(names, self._threads)
        self._patches = Patches(names, self._threads)
        self._eager = EagerSwitch()

    def install(self, around: Callable[[InterceptedCall], Any], model: Any = None) -> None:
        """Pass the calls of this thread to ``around`` until ``remove``."""
        self._eager.turn_on()
        self._calls.around = around
        self._functions.calls = self._patches.calls = self._calls
        self._functions.install()
        self._patches.install()

    def remove(self) -> None:
        """Stop intercepting calls and restore the functions that were replaced."""
        self._calls.around = None
        self._functions.calls = self._patches.calls = None
        self._functions.remove()
        self._patches.remove()
        self._eager.turn_off()

    def restart_counts(self) -> None:
        """Number the calls of each API from 0 again."""
        self._calls.counts.clear()

    @contextmanager
    def _suspend(self) -> Any:
        with self._threads.suspend(), compat.disable_modes():
            yield

    def suspend(self) -> AbstractContextManager[Any]:
        """Return a context whose calls are neither intercepted nor seen by modes of the program."""
        context: AbstractContextManager[Any] = self._suspend()
        return context

    def read_random_states(self, generator: Any = None) -> _RandomStates:
        """Return the present states of all default generators, and of ``generator`` if it is one."""
        return _RandomStates(generator)


class _CallForwarder(TorchCallRecorder):
    """A receiver of the calls that the captures see, which passes them on instead of recording them.

    Attributes:
        around: The function that runs the calls; None to run them unchanged.
        counts: The number of calls of each API in this step.
    """

    def __init__(self, threads: Threads) -> None:
        self.session: Any = ActiveSession()
        self._threads = threads
        self.around: Callable[[InterceptedCall], Any] | None = None
        self.counts: dict[str, int] = {}

    def _count(self, prefix: str) -> str:
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}.{number}"

    def record(
        self,
        prefix: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: Stack,
        shown: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        in_place: bool = False,
        filled: Collection[Any] = (),
        written: Sequence[Any] = (),
    ) -> Any:
        """Pass a call to ``around``, and return what that returns."""
        around = self.around
        if around is None or compat.is_tracing():
            return function(*args, **kwargs)
        name = self._count(prefix)
        writes = in_place or bool(filled) or bool(written)
        try:
            return around(_TorchCall(name, function, args, kwargs, writes=writes))
        except BaseException:
            self.counts[prefix] = int(name.rpartition(".")[2])  # a recorder does not count failed calls
            raise

    def begin(self, prefix: str, *_: Any, **__: Any) -> None:
        """Count a collective, which is not intercepted."""
        if self.around is not None and not compat.is_tracing():
            self._count(prefix)

    def note_allocation(self, name: str, tensor: Any) -> None:
        """Do nothing; only recordings mark memory without values."""

    def attempt(self, name: str, function: Callable[[], Any], otherwise: Any) -> Any:
        """Return what ``function`` returns, or ``otherwise`` if it raises an exception."""
        try:
            return function()
        except Exception:
            return otherwise


class _TorchCall(InterceptedCall):
    """A call of torch that has not run yet."""

    __slots__ = ()

    def differentiable_inputs(self) -> list[Any]:
        """Return the tensors among the arguments that need a gradient, in order, before the call runs."""
        if not torch.is_grad_enabled():
            return []
        return list(list_tensors((*self.args, *self.kwargs.values())))

    def _run_with_gradients(self, receiver: GradientReceiver) -> Any:
        sources = list_sources((*self.args, *self.kwargs.values())) if torch.is_grad_enabled() else []
        first_new = compat.get_sequence_number()
        result = self.function(*self.args, **self.kwargs)
        if sources:
            outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            arrived = partial(GradientCollector, receiver, len(outputs), len(sources), _copy_gradient)
            with compat.disable_modes():
                attach_walked(outputs, sources, arrived, first_new)
        return result


def _copy_gradient(gradient: torch.Tensor) -> torch.Tensor:
    with compat.disable_modes():
        return gradient.detach().clone()


class _RandomStates:
    """The states of the random number generators at one moment.

    Args:
        generator: The generator that the call was given, which is read together with the default ones.
    """

    def __init__(self, generator: Any) -> None:
        self._states = generators.read_states()
        if isinstance(generator, torch.Generator):
            self._states += generators.read_states(generator)
        modules = compat_conditions.iterate_modules_without_generators()
        self._devices = [(module, module.get_rng_state()) for module in modules]

    def restore(self) -> None:
        """Set the generators to these states."""
        with compat_conditions.disable_transforms():
            for _, generator, state in self._states:
                generator.set_state(state)
            for module, state in self._devices:
                module.set_rng_state(state)

    def have_changed(self) -> bool:
        """Return True if a generator has another state now."""
        with compat_conditions.disable_transforms():
            return any(not torch.equal(state, generator.get_state()) for _, generator, state in self._states) or any(
                not torch.equal(state, module.get_rng_state()) for module, state in self._devices
            )
