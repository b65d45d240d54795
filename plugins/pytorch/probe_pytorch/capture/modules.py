"""Level L0: modules, recorded by forward hooks and by hooks of graph nodes and tensors.

torch's full backward hooks are not used: they insert a function around the module, which breaks in-place
operations and changes the order in which gradients are added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from probe_recording.api import Backward, ModuleHooks
from probe_recording.capture.module_hooks import RunningModule
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from probe_pytorch import compat, compat_hooks
from probe_pytorch.capture.call_recorder import is_recompute
from probe_pytorch.capture.gradients import attach_walked, list_sources, list_tensors
from probe_pytorch.capture.transient_hooks import exclude_from_copies, remove_hook
from probe_pytorch.generators import State, find_draws, read_states
from probe_pytorch.session import TorchSession

COMPILED = "_orig_mod"
"""The part that torch.compile inserts into the path of a module; names of records leave it out."""

SKIPPED_CLASSES = ("FullyShardedDataParallel",)


class TorchModuleHooks(ModuleHooks[TorchSession]):
    """Hooks of torch's modules and of their parameters' gradients.

    Two global hooks observe all modules, so that a module has no attribute that would be saved, copied or exported
    with it. Only a module with user hooks is hooked itself, because these hooks may change its arguments and its
    output. The recorder's hooks are excluded from its pickles and copies.
    """

    scope = "Module"
    early_stop = "_StopRecomputationError"

    def __init__(self, threads: Threads) -> None:
        super().__init__(threads)
        self._unhooked: set[int] = set()
        self._warn_again: Callable[[], None] | None = None
        self._states: dict[str, list[State]] = {}

    # -- hooks -----------------------------------------------------------------------------

    def install(self, named: Iterable[tuple[str, nn.Module]], gradients: bool) -> None:
        """Hook the modules, given as pairs of a name ``{path}.{Class}`` and a module."""
        with compat.disable_modes():
            super().install([(name, module) for name, module in named if _can_be_hooked(module)], gradients)
            if self._unhooked and self._warn_again is None:
                self._warn_again = compat.silence_global_hooks()
                self._handles += (
                    register_module_forward_pre_hook(self._begin_any_forward),
                    register_module_forward_hook(self._end_any_forward, always_call=True),
                )

    def _hook(self, module: nn.Module) -> None:
        if module._forward_pre_hooks or module._forward_hooks:
            self._handles.append(
                exclude_from_copies(module.register_forward_pre_hook(self._begin_forward, with_kwargs=True))
            )
            self._handles.append(exclude_from_copies(module.register_forward_hook(self._end_forward, always_call=True)))
        else:
            self._unhooked.add(id(module))

    def _unhook(self, handle: Any) -> None:
        remove_hook(handle)

    def remove(self) -> None:
        """Remove all hooks."""
        warn_again, self._warn_again = self._warn_again, None
        if warn_again is not None:
            warn_again()
        self._unhooked.clear()
        self._states.clear()
        super().remove()

    def _iterate_direct_parameters(self, module: nn.Module) -> Iterable[tuple[str, nn.Parameter]]:
        return module.named_parameters(recurse=False)

    # -- forward ---------------------------------------------------------------------------

    def _begin_any_forward(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if compat.is_exporting():
            return
        session = self.session
        if id(module) in self._unhooked and session is not None and session.active:
            self._begin_forward(module, args, compat.read_keywords(sys._getframe(1)))

    def _end_any_forward(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not compat.is_exporting() and id(module) in self._unhooked:
            self._end_forward(module, args, output)

    def _begin_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if compat.is_tracing():
            return
        super()._begin_forward(module, args, kwargs)
        self._read_states()

    def _read_states(self) -> None:
        """Read the states that the module may draw from, at levels that record no calls within it."""
        session, running = self.session, self._threads.running
        if session is None or session.conditions is None or session.config.apis or not running:
            return
        key = running[-1].key
        try:
            with session.quiet():
                self._states[key] = read_states()
        except Exception as error:  # the forward itself must go on whatever the recorder's error
            session.log_failure("random states", key, error)

    def _record(self, session: TorchSession, running: RunningModule, output: Any) -> None:
        states = self._states.pop(running.key, None)
        if states is not None and session.conditions is not None:
            session.conditions.add_draws(find_draws(running.key, states))
        super()._record(session, running, output)

    def _is_recompute(self, stack: Stack) -> bool:
        return compat.get_graph_task() != -1 and is_recompute(stack)

    # -- backward --------------------------------------------------------------------------

    def _take_sources(self, running: RunningModule, values: tuple[Any, ...]) -> None:
        if torch.is_grad_enabled():
            running.sources = list_sources(values)
            running.first_new = compat.get_sequence_number()

    def _expect_gradients(self, session: TorchSession, running: RunningModule, key: str, output: Any) -> None:
        outputs = list_tensors((output,)) if torch.is_grad_enabled() else []
        if outputs:
            size = (len(outputs), len(running.sources))
            backward = partial(Backward, session, key, running.parent, size, running.is_in_selected_module)
            attach_walked(outputs, running.sources, backward, running.first_new)

    def _hook_gradient(self, parameter: nn.Parameter, on_gradient: Callable[[Any], None]) -> Any:
        """Call ``on_gradient`` with each gradient of a parameter; of a sharded parameter after its reduction."""
        if isinstance(parameter, nn.Parameter) and type(parameter.data) is torch.Tensor:
            return compat_hooks.register_hook(parameter, on_gradient)
        passed_by_autograd = False

        def receive_gradient(gradient: torch.Tensor) -> None:
            nonlocal passed_by_autograd
            passed_by_autograd = True
            on_gradient(gradient)

        def receive_accumulated(parameter: torch.Tensor) -> None:
            """Report a gradient that FSDP2 sets, which reaches no other hook."""
            nonlocal passed_by_autograd
            if not passed_by_autograd and parameter.grad is not None:
                on_gradient(parameter.grad)
            passed_by_autograd = False

        self._handles.append(compat_hooks.register_hook(parameter, receive_gradient))
        return parameter.register_post_accumulate_grad_hook(receive_accumulated)


def _can_be_hooked(module: nn.Module) -> bool:
    """Return False for FSDP's wrapper, and for a ScriptModule, whose forward runs outside of Python."""
    return type(module).__name__ not in SKIPPED_CLASSES and not isinstance(module, torch.jit.ScriptModule)


def list_models(model: nn.Module | Iterable[nn.Module] | None) -> tuple[nn.Module, ...]:
    """Return the models that a script passed, one, several or None, as a tuple."""
    return (model,) if isinstance(model, nn.Module) else tuple(model or ())


def list_modules(models: nn.Module | Iterable[nn.Module]) -> list[tuple[str, nn.Module]]:
    """Return the modules inside one or several models with their names, ``{path}.{Class}``.

    Names in several models begin with the index of the model. The model itself is left out. A module that two
    parents share has the name that it has in the first.
    """
    prefixed_models = [("", models)] if isinstance(models, nn.Module) else [(f"{i}.", m) for i, m in enumerate(models)]
    modules: list[tuple[str, nn.Module]] = []
    for prefix, model in prefixed_models:
        for path, module in model.named_modules():
            parts = [part for part in path.split(".") if part != COMPILED]
            if path and parts and path.rpartition(".")[2] != COMPILED:
                modules.append((f"{prefix}{'.'.join(parts)}.{type(module).__name__}", module))
    return modules
