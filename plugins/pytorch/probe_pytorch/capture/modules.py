"""Level L0: modules, by forward hooks and the hooks of nodes and tensors, never by full backward hooks.

A full backward hook puts a function of its own around the module, which breaks in-place operations
and changes the order in which gradients are added.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from probe_recording import Backward, Threads, Tree, stack_of
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.utils.hooks import unserializable_hook

from probe_pytorch import compat
from probe_pytorch.capture.calls import is_recompute
from probe_pytorch.capture.gradients import Source, attach_walked, sources_of, tensors_in
from probe_pytorch.capture.hidden import hide, remove
from probe_pytorch.session import Entry, Session

COMPILED = "_orig_mod"
"""What torch.compile puts into the path of a module; the module is called as without it."""

EARLY_STOP = "_StopRecomputationError"

SKIPPED_CLASSES = ("FullyShardedDataParallel",)


@dataclass(slots=True, eq=False)
class Running:
    """A module whose forward has begun.

    Attributes:
        handled: The exception that was being handled then, if any.
    """

    module: nn.Module
    key: str | None
    fields: dict[str, Tree]
    sources: list[Source]
    first_new: int
    wanted: bool
    parent: str | None
    handled: BaseException | None
    inside: bool

    def raised(self) -> bool:
        """Did its forward end by an exception? Not by the one that ends a recomputation early."""
        error = sys.exc_info()[1]
        return error is not None and error is not self.handled and type(error).__name__ != EARLY_STOP


class ModuleCapture:
    """Hooks that see the modules of a model, and hooks on their parameters.

    Two hooks of all modules see them, so that a module holds nothing that would be saved, copied or exported
    with it. Only a module that has hooks of its own is hooked itself: what those make of its arguments and
    its output is what it takes in and gives out. Its pickles and copies do not have these hooks.

    Args:
        threads: The stacks of running modules.
    """

    def __init__(self, threads: Threads) -> None:
        self.session: Session | None = None
        self._threads = threads
        self._names: dict[int, tuple[str, nn.Module]] = {}
        self._unhooked: set[int] = set()
        self._handles: list[Any] = []
        self._global_handles: list[Any] = []
        self._warn_again: Callable[[], None] | None = None
        self._watches = False
        self.paused = False
        self._gradients: dict[str, Entry] = {}
        self._parameters: set[int] = set()

    # -- being there -----------------------------------------------------------------------

    def install(self, named: Iterable[tuple[str, nn.Module]], gradients: bool) -> None:
        """Hook the modules; names are ``{path}.{Class}``."""
        with compat.quiet():
            self._install(named, gradients)

    def _install(self, named: Iterable[tuple[str, nn.Module]], gradients: bool) -> None:
        self._watches = gradients
        for name, module in named:
            if id(module) in self._names or type(module).__name__ in SKIPPED_CLASSES:
                continue
            if isinstance(module, torch.jit.ScriptModule):
                continue  # its forward runs outside of Python, and it takes no hooks
            self._names[id(module)] = name, module
            if module._forward_pre_hooks or module._forward_hooks:
                self._handles.append(hide(module.register_forward_pre_hook(self._before, with_kwargs=True)))
                self._handles.append(hide(module.register_forward_hook(self._after, always_call=True)))
            else:
                self._unhooked.add(id(module))
            if gradients:
                self._watch_parameters(name, module)
        if self._unhooked and not self._global_handles:
            self._warn_again = compat.silence_global_hooks()
            self._global_handles = [
                register_module_forward_pre_hook(self._before_any),
                register_module_forward_hook(self._after_any, always_call=True),
            ]

    def remove(self) -> None:
        """Take all hooks away."""
        handles, self._handles = [*self._handles, *self._global_handles], []
        self._global_handles = []
        warn_again, self._warn_again = self._warn_again, None
        if warn_again is not None:
            warn_again()
        for handle in handles:
            remove(handle)
        self._names.clear()
        self._unhooked.clear()
        self._parameters.clear()
        self._threads.running.clear()
        self._threads.modules.clear()

    def begin_step(self, session: Session | None) -> None:
        """Record into ``session`` from now on."""
        if session is not self.session:
            self.session = session
            self._gradients = {}

    # -- forward ---------------------------------------------------------------------------

    def _before_any(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if compat.is_exporting():
            return
        session = self.session
        if id(module) in self._unhooked and session is not None and session.active:
            self._before(module, args, compat.keywords(sys._getframe(1)))

    def _after_any(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if not compat.is_exporting() and id(module) in self._unhooked:
            self._after(module, args, output)

    def _before(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        if compat.is_exporting():
            return
        session = self.session
        if self.paused or session is None or not session.active:
            return
        if self._threads.inside or compat.is_tracing():
            return
        found = self._names.get(id(module))
        if found is None:
            return  # a copy of a module that is recorded
        kwargs = kwargs or {}
        name = "Module"
        try:
            prefix = f"Module.{found[0]}"
            number = session.number(prefix)
            name = f"{prefix}.forward.{number}"
            modules = self._threads.modules
            parent = modules[-1] if modules else None
            inside = session.filter.inside
            wanted = session.filter.enter_module(name)
            running = Running(module, name, {}, [], 0, wanted, parent, sys.exc_info()[1], inside)
            self._threads.running.append(running)
            modules.append(name)
            if wanted:
                session.module_began(name, parent)
            if session.config.task == "structure":
                return
            if wanted and session.wants("forward", "input"):
                save = session.save_for(name, fleeting=True)
                with compat.quiet():
                    running.fields["input_args"] = session.collector.arguments(args, f"{name}.input", save)
                    running.fields["input_kwargs"] = session.collector.keywords(
                        kwargs, f"{name}.kwargs", save
                    )
            if "backward" in session.config.directions and torch.is_grad_enabled():
                with compat.quiet():
                    running.sources = sources_of((*args, *kwargs.values()))
                    running.first_new = compat.sequence_number()
        except Exception as error:
            session.failed("module input", name, error)

    def _after(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if compat.is_exporting():
            return
        session = self.session
        if self.paused or session is None or not session.active or self._threads.inside:
            return
        name = "Module"
        try:
            running = self._ended(module)
            if running is None or running.key is None:
                return
            name = running.key
            session.filter.leave_module(name)
            if output is None and running.raised():
                prefix, _, number = name.rpartition(".forward.")
                session.take_back(prefix, int(number))
                return
            if not running.wanted:
                if session.config.task != "structure":
                    self._expect_gradients(session, running, output)
                return
            stack = stack_of(sys._getframe(1))
            if session.config.task != "structure":
                self._take(session, running, output)
                if compat.graph_task() != -1 and is_recompute(stack):
                    running.fields["is_recompute"] = True
            if "forward" in session.config.directions or session.config.task == "structure":
                session.add(name, running.fields, stack, running.parent)
            if session.config.task != "structure":
                with compat.quiet():
                    self._expect_parameters(session, module, name)
                self._expect_gradients(session, running, output)
        except Exception as error:
            session.failed("module output", name, error)

    def _ended(self, module: nn.Module) -> Running | None:
        """Take the module off the stack, and with it what an exception left above it."""
        running = self._threads.running
        for place in range(len(running) - 1, -1, -1):
            if running[place].module is module:
                found: Running = running[place]
                del running[place:], self._threads.modules[place:]
                return found
        return None

    def _take(self, session: Session, running: Running, output: Any) -> None:
        name = str(running.key)
        save = session.save_for(name)
        with compat.quiet():
            if session.wants("forward", "output"):
                outputs = output if type(output) is tuple else (output,)
                running.fields["output"] = session.collector.arguments(outputs, f"{name}.output", save)
            if "forward" in session.config.directions:
                running.fields["parameters"] = {
                    key: session.collector.tree(parameter, f"{name}.parameters.{key}", save)
                    for key, parameter in running.module.named_parameters(recurse=False)
                }

    # -- backward --------------------------------------------------------------------------

    def _expect_gradients(self, session: Session, running: Running, output: Any) -> None:
        if not torch.is_grad_enabled() or "backward" not in session.config.directions:
            return
        with compat.quiet():
            outputs = tensors_in((output,))
            if not outputs:
                return
            key = str(running.key).replace(".forward.", ".backward.")
            size = (len(outputs), len(running.sources))
            attach_walked(
                outputs,
                running.sources,
                lambda: Backward(session, key, running.parent, size, running.inside),
                running.first_new,
            )

    def _expect_parameters(self, session: Session, module: nn.Module, name: str) -> None:
        """The record of the parameters' gradients, null until they arrive (spec/dump 2.3)."""
        if not session.config.parameter_gradients or not self._watches:
            return
        key = f"{name.partition('.forward.')[0]}.parameters_grad"
        if key in self._gradients:
            return
        wanted = {k: [None] for k, p in module.named_parameters(recurse=False) if p.requires_grad}
        if wanted:
            entry = session.open(key, dict(wanted))
            self._gradients[key] = entry
            session.arrived(entry)

    def _watch_parameters(self, name: str, module: nn.Module) -> None:
        for key, parameter in module.named_parameters(recurse=False):
            if parameter.requires_grad and id(parameter) not in self._parameters:
                self._parameters.add(id(parameter))
                self._handles.append(self._watch(parameter, f"Module.{name}.parameters_grad", key))

    def _watch(self, parameter: nn.Parameter, record: str, key: str) -> Any:
        """Have the gradient of a parameter told; of one that is sharded, once it is reduced."""
        if isinstance(parameter, nn.Parameter) and type(parameter.data) is torch.Tensor:

            def arrived(gradient: torch.Tensor) -> None:
                self._gradient_arrived(record, key, gradient)

            return parameter.register_hook(unserializable_hook(arrived))

        def reduced(parameter: torch.Tensor) -> None:
            if parameter.grad is not None:
                self._gradient_arrived(record, key, parameter.grad)

        return parameter.register_post_accumulate_grad_hook(reduced)

    def _gradient_arrived(self, record: str, key: str, gradient: torch.Tensor) -> None:
        session = self.session
        entry = self._gradients.get(record)
        if session is None or not session.active or entry is None:
            return
        try:
            with compat.quiet():
                save = session.save_for(record, fleeting=True)  # the optimizer's to change
                leaf = session.collector.tree(gradient, f"{record}.{key}", save)
            entry.fields[key] = [leaf]
            session.arrived(entry)
        except Exception as error:
            session.failed("parameter gradient", record, error)

    def take_sharded_gradients(self) -> None:
        """Gradients that never passed a parameter's hook, as of FSDP2: from ``.grad``, at stop."""
        for name, module in self._names.values():
            record = f"Module.{name}.parameters_grad"
            entry = self._gradients.get(record)
            if entry is None:
                continue
            for key, parameter in module.named_parameters(recurse=False):
                if entry.fields.get(key) == [None] and parameter.grad is not None:
                    self._gradient_arrived(record, key, parameter.grad)


def named_modules(models: nn.Module | Iterable[nn.Module]) -> list[tuple[str, nn.Module]]:
    """The modules inside a model as ``{path}.{Class}``; of several, the index of each stands in front.

    The model itself is no node; a module shared by two parents has the first one's name.
    """
    several = (
        [("", models)] if isinstance(models, nn.Module) else [(f"{i}.", m) for i, m in enumerate(models)]
    )
    found: list[tuple[str, nn.Module]] = []
    for prefix, model in several:
        for path, module in model.named_modules():
            parts = [part for part in path.split(".") if part != COMPILED]
            if path and parts and path.rpartition(".")[2] != COMPILED:
                found.append((f"{prefix}{'.'.join(parts)}.{type(module).__name__}", module))
    return found
