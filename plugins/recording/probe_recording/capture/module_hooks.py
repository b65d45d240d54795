"""Records modules by hooks on their forward methods: level L0 and ``module_dump`` of all frameworks."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from probe_recording.capture.threads import Threads
from probe_recording.sessions.session import Session
from probe_recording.sites import Stack, stack_of
from probe_recording.values.leaves import Tree
from probe_recording.values.tensor_store import Entry

S = TypeVar("S", bound=Session)


@dataclass(slots=True, eq=False)
class RunningModule:
    """A module whose forward has begun.

    Attributes:
        module: The module.
        key: The name of its forward record.
        is_recorded: True if its forward is recorded.
        parent: The forward record of the surrounding module, or None.
        is_in_selected_module: True inside a module that ``list`` selects, in which everything is recorded.
        earlier_exception: The exception that was being handled when the forward began, or None.
        fields: The fields of the forward record so far.
        sources: The places in the autograd graph that receive the inputs' gradients; framework-specific.
        first_new: The sequence number of the first graph node that the forward can create, for frameworks
            that count their nodes.
    """

    module: Any
    key: str
    is_recorded: bool
    parent: str | None
    is_in_selected_module: bool
    earlier_exception: BaseException | None
    fields: dict[str, Tree] = field(default_factory=dict)
    sources: list[Any] = field(default_factory=list)
    first_new: int = 0


class ModuleHooks(ABC, Generic[S]):
    """A recorder of modules and of their parameters' gradients; subclasses hook both in their framework.

    Args:
        threads: The stacks of the modules that are running, for each thread.

    Attributes:
        session: The session that is recorded into, or None.
        paused: True while ``module_dump`` records a single module with hooks of its own.
        scope: The first part of the names of records, such as ``Module``.
        outputs_may_change: True if the data of an output may change before its record is complete, so that they are
            copied at once.
        early_stop: The class name of an exception that ends a forward early without being an error.
    """

    scope: str
    outputs_may_change = False
    early_stop = ""

    def __init__(self, threads: Threads) -> None:
        self.session: S | None = None
        self.paused = False
        self._threads = threads
        self._names: dict[int, tuple[str, Any]] = {}
        self._handles: list[Any] = []
        self._records_gradients = False
        self._gradients: dict[str, Entry] = {}

    # -- to be overridden for a framework -------------------------------------------------

    @abstractmethod
    def _hook(self, module: Any) -> None:
        """Install the hooks before and after each forward of the module."""

    def _unhook(self, handle: Any) -> None:
        """Remove one of the hooks in ``_handles``."""
        handle.remove()

    @abstractmethod
    def _iterate_direct_parameters(self, module: Any) -> Iterable[tuple[str, Any]]:
        """Return names and values of the module's own parameters, without those of its children."""

    @abstractmethod
    def _hook_gradient(self, parameter: Any, on_gradient: Callable[[Any], None]) -> Any:
        """Install a hook that calls ``on_gradient`` with the gradient of a parameter; return its handle."""

    @abstractmethod
    def _take_sources(self, running: RunningModule, values: tuple[Any, ...]) -> None:
        """Note, before the forward, which graph nodes receive the gradients of the inputs."""

    @abstractmethod
    def _expect_gradients(self, session: S, running: RunningModule, key: str, output: Any) -> None:
        """Register for the gradients of the module, to be added to its backward record ``key``."""

    @abstractmethod
    def _is_recompute(self, stack: Stack) -> bool:
        """Return True if activation checkpointing runs the forward a second time."""

    # -- hooks -----------------------------------------------------------------------------

    def install(self, named: Iterable[tuple[str, Any]], gradients: bool) -> None:
        """Hook the modules.

        Args:
            named: Pairs of a name, ``{path}.{Class}``, and a module.
            gradients: True to record the gradients of their parameters too.
        """
        self._records_gradients = gradients
        for name, module in named:
            if id(module) in self._names:
                continue
            self._names[id(module)] = name, module
            self._hook(module)
            if gradients:
                self._hook_parameters(name, module)

    def remove(self) -> None:
        """Remove all hooks."""
        handles, self._handles = self._handles, []
        for handle in handles:
            self._unhook(handle)
        self._names.clear()
        self._threads.running.clear()
        self._threads.modules.clear()

    def begin_step(self, session: S) -> None:
        """Record into ``session`` from now on."""
        if session is not self.session:
            self.session = session
            self._gradients = {}

    # -- forward ---------------------------------------------------------------------------

    def _get_recording_session(self) -> S | None:
        """Return the session if it records calls at this point."""
        is_recording = self.session is not None and self.session.active
        return self.session if is_recording and not self.paused and not self._threads.inside else None

    def _begin_forward(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """Record the inputs of a forward that begins; errors of the recorder are logged, not raised."""
        session = self._get_recording_session()
        if session is None:
            return
        name_and_module = self._names.get(id(module))
        if name_and_module is None:
            return  # a copy of a hooked module: its hooks were copied, its name was not
        kwargs = kwargs or {}
        name = self.scope
        try:
            prefix = f"{self.scope}.{name_and_module[0]}"
            name = f"{prefix}.forward.{session.number(prefix)}"
            modules = self._threads.modules
            parent = modules[-1] if modules else None
            is_in_selected_module = session.filter.is_in_selected_module
            is_recorded = session.filter.enter_module(name)
            running = RunningModule(module, name, is_recorded, parent, is_in_selected_module, sys.exc_info()[1])
            self._threads.running.append(running)
            modules.append(name)
            if is_recorded:
                session.add_module(name, parent)
            if session.config.task == "structure":
                return
            with session.quiet():
                if is_recorded and session.wants("forward", "input"):
                    save = session.save_for(name, may_change=True)
                    running.fields.update(session.collector.inputs(name, args, kwargs, save))
                if "backward" in session.config.directions:
                    self._take_sources(running, (*args, *kwargs.values()))
        except Exception as error:  # the forward itself must go on whatever the recorder's error
            session.log_failure("module input", name, error)

    def _end_forward(self, module: Any, *rest: Any) -> None:
        """Record the output of a forward that returned or raised; the output is the last of ``rest``."""
        session = self._get_recording_session()
        if session is None:
            return
        output = rest[-1]
        name = self.scope
        try:
            running = self._pop_running(module)
            if running is None:
                return
            name = running.key
            session.filter.leave_module(name)
            if output is None and self._has_raised(running):
                prefix, _, number = name.rpartition(".forward.")
                session.take_back(prefix, int(number))
                return
            with session.quiet():
                self._record(session, running, output)
        except Exception as error:  # the forward's output must be returned whatever the recorder's error
            session.log_failure("module output", name, error)

    def _pop_running(self, module: Any) -> RunningModule | None:
        """Remove the module from the stack, and modules above it that an exception left there."""
        running = self._threads.running
        for place in range(len(running) - 1, -1, -1):
            if running[place].module is module:
                ended: RunningModule = running[place]
                del running[place:], self._threads.modules[place:]
                return ended
        return None

    def _has_raised(self, running: RunningModule) -> bool:
        """Return True if the forward ended by an exception that is an error."""
        error = sys.exc_info()[1]
        return error is not None and error is not running.earlier_exception and type(error).__name__ != self.early_stop

    def _record(self, session: S, running: RunningModule, output: Any) -> None:
        name = running.key
        config = session.config
        measured = config.task != "structure"
        if running.is_recorded:
            stack = stack_of(sys._getframe(2))
            if measured:
                self._collect_outputs(session, running, output)
                if self._is_recompute(stack):
                    running.fields["is_recompute"] = True
            if "forward" in config.directions or not measured:
                session.add(name, running.fields, stack, running.parent)
            if measured and self._records_gradients:
                self._expect_parameters(session, running)
        if measured and "backward" in config.directions:
            self._expect_gradients(session, running, name.replace(".forward.", ".backward."), output)

    def _collect_outputs(self, session: S, running: RunningModule, output: Any) -> None:
        name = running.key
        save = session.save_for(name, self.outputs_may_change)
        collector = session.collector
        if session.wants("forward", "output"):
            outputs = output if type(output) is tuple else (output,)
            running.fields["output"] = collector.outputs(name, outputs, save)
        if "forward" in session.config.directions:
            running.fields["parameters"] = {
                key: collector.tree(parameter, f"{name}.parameters.{key}", save)
                for key, parameter in self._iterate_direct_parameters(running.module)
            }

    # -- backward --------------------------------------------------------------------------

    def _expect_parameters(self, session: S, running: RunningModule) -> None:
        """Open the record of the parameters' gradients, each null until it arrives."""
        key = f"{running.key.partition('.forward.')[0]}.parameters_grad"
        if key in self._gradients:
            return
        gradients = {k: [None] for k, p in self._iterate_direct_parameters(running.module) if p.requires_grad}
        if gradients:
            entry = session.open(key, dict(gradients))
            self._gradients[key] = entry
            session.note_arrival(entry)

    def _hook_parameters(self, name: str, module: Any) -> None:
        """Watch the gradient of each parameter, once for each module that holds it."""
        for key, parameter in self._iterate_direct_parameters(module):
            if parameter.requires_grad:
                receive = partial(self._record_gradient, f"{self.scope}.{name}.parameters_grad", key)
                self._handles.append(self._hook_gradient(parameter, receive))

    def _record_gradient(self, record: str, key: str, gradient: Any) -> None:
        """Write the gradient of a parameter into its record."""
        session = self.session
        entry = self._gradients.get(record)
        if session is None or not session.active or entry is None:
            return
        try:
            with session.quiet():
                save = session.save_for(record, may_change=True)  # an optimizer may change it
                entry.fields[key] = [session.collector.tree(gradient, f"{record}.{key}", save)]
            session.note_arrival(entry)
        except Exception as error:  # the backward must go on whatever the recorder's error
            session.log_failure("parameter gradient", record, error)
