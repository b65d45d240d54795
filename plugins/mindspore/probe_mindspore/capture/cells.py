"""Level L0: the Cells of a model by hooks on their forwards, their gradients from the graph's nodes."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mindspore import nn
from probe_recording import Backward, Entry, Threads, Tree, stack_of

from probe_mindspore import compat
from probe_mindspore.capture.gradients import Source, attach, sources_of, tensors_in
from probe_mindspore.session import Session


@dataclass(slots=True, eq=False)
class Running:
    """A Cell whose forward has begun.

    Attributes:
        handled: The exception that was being handled then, if any.
    """

    cell: nn.Cell
    key: str
    wanted: bool
    parent: str | None
    inside: bool
    handled: BaseException | None
    fields: dict[str, Tree] = field(default_factory=dict)
    sources: list[Source] = field(default_factory=list)

    def raised(self) -> bool:
        """Did its forward end by an exception?"""
        error = sys.exc_info()[1]
        return error is not None and error is not self.handled


class Cells:
    """Hooks on the Cells of a model, and on their parameters."""

    def __init__(self, threads: Threads) -> None:
        self.session: Session | None = None
        self.paused = False
        self._threads = threads
        self._names: dict[int, tuple[str, nn.Cell]] = {}
        self._handles: list[Any] = []
        self._watches = False
        self._gradients: dict[str, Entry] = {}
        self._parameters: set[int] = set()

    def __deepcopy__(self, memo: dict[int, Any]) -> Cells:
        return self  # a copied model keeps its hooks, which do not know it

    # -- being there -----------------------------------------------------------------------

    def install(self, named: Iterable[tuple[str, nn.Cell]], gradients: bool) -> None:
        """Hook the Cells; names are ``{path}.{Class}``."""
        self._watches = gradients
        for name, cell in named:
            if id(cell) in self._names:
                continue
            self._names[id(cell)] = name, cell
            self._handles += compat.hook_forward(cell, self._before, self._after)
            if gradients:
                self._watch_parameters(name, cell)

    def remove(self) -> None:
        """Take all hooks away."""
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()
        self._names.clear()
        self._parameters.clear()
        self._threads.running.clear()
        self._threads.modules.clear()

    def begin_step(self, session: Session) -> None:
        """Record into ``session`` from now on."""
        if session is not self.session:
            self.session = session
            self._gradients = {}

    # -- forward ---------------------------------------------------------------------------

    def _before(self, cell: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        session = self.session
        if self.paused or session is None or not session.active or self._threads.inside:
            return
        name = "Cell"
        try:
            found = self._names.get(id(cell))
            if found is None:
                return  # a copy of a Cell that is recorded
            prefix = f"Cell.{found[0]}"
            name = f"{prefix}.forward.{session.number(prefix)}"
            modules = self._threads.modules
            parent = modules[-1] if modules else None
            inside = session.filter.inside
            running = Running(
                cell, name, session.filter.enter_module(name), parent, inside, sys.exc_info()[1]
            )
            self._threads.running.append(running)
            modules.append(name)
            if running.wanted:
                session.module_began(name, parent)
            if session.config.task == "structure":
                return
            with session.quiet():
                if running.wanted and session.wants("forward", "input"):
                    save = session.save_for(name, fleeting=True)
                    running.fields["input_args"] = session.collector.arguments(args, f"{name}.input", save)
                    running.fields["input_kwargs"] = session.collector.keywords(
                        kwargs or {}, f"{name}.kwargs", save
                    )
                if self._wants_backward(session):
                    running.sources = sources_of((*args, *(kwargs or {}).values()))
        except Exception as error:
            session.failed("module input", name, error)

    def _after(self, cell: nn.Cell, args: tuple[Any, ...], *rest: Any) -> None:
        session = self.session
        if self.paused or session is None or not session.active or self._threads.inside:
            return
        output = rest[-1]
        name = "Cell"
        try:
            running = self._ended(cell)
            if running is None:
                return
            name = running.key
            session.filter.leave_module(name)
            if output is None and running.raised():
                prefix, _, number = name.rpartition(".forward.")
                session.take_back(prefix, int(number))
                return
            with session.quiet():
                self._record(session, running, output)
        except Exception as error:
            session.failed("module output", name, error)

    def _ended(self, cell: nn.Cell) -> Running | None:
        """Take the Cell off the stack, and with it what an exception left above it."""
        running = self._threads.running
        for place in range(len(running) - 1, -1, -1):
            if running[place].cell is cell:
                found: Running = running[place]
                del running[place:], self._threads.modules[place:]
                return found
        return None

    def _record(self, session: Session, running: Running, output: Any) -> None:
        name = running.key
        measured = session.config.task != "structure"
        if running.wanted:
            stack = stack_of(sys._getframe(2))
            if measured:
                self._take(session, running, output)
                if compat.is_recompute(stack):
                    running.fields["is_recompute"] = True
            if "forward" in session.config.directions or not measured:
                session.add(name, running.fields, stack, running.parent)
            if measured:
                self._expect_parameters(session, running.cell, name)
        if self._wants_backward(session):
            tensors = tensors_in((output,))
            key = name.replace(".forward.", ".backward.")
            size = len(tensors), len(running.sources)
            attach(
                tensors,
                running.sources,
                lambda: Backward(session, key, running.parent, size, running.inside),
                session.quiet,
            )

    def _take(self, session: Session, running: Running, output: Any) -> None:
        name = running.key
        save = session.save_for(name, fleeting=True)
        if session.wants("forward", "output"):
            outputs = output if type(output) is tuple else (output,)
            running.fields["output"] = session.collector.arguments(outputs, f"{name}.output", save)
        if "forward" in session.config.directions:
            running.fields["parameters"] = {
                key: session.collector.tree(parameter, f"{name}.parameters.{key}", save)
                for key, parameter in own_parameters(running.cell)
            }

    # -- backward --------------------------------------------------------------------------

    @staticmethod
    def _wants_backward(session: Session) -> bool:
        config = session.config
        return "backward" in config.directions and config.task != "structure" and compat.has_nodes()

    def _expect_parameters(self, session: Session, cell: nn.Cell, name: str) -> None:
        """The record of the parameters' gradients, null until they arrive (spec/dump 2.3)."""
        key = f"{name.partition('.forward.')[0]}.parameters_grad"
        if not self._watches or key in self._gradients:
            return
        wanted = {k: [None] for k, p in own_parameters(cell) if p.requires_grad}
        if wanted:
            entry = session.open(key, dict(wanted))
            self._gradients[key] = entry
            session.arrived(entry)

    def _watch_parameters(self, name: str, cell: nn.Cell) -> None:
        for key, parameter in own_parameters(cell):
            if parameter.requires_grad and id(parameter) not in self._parameters:
                self._parameters.add(id(parameter))
                self._handles.append(self._watch(parameter, f"Cell.{name}.parameters_grad", key))

    def _watch(self, parameter: Any, record: str, key: str) -> Any:
        def hook(gradient: Any) -> None:
            self._gradient_arrived(record, key, gradient)

        return parameter.register_hook(hook)

    def _gradient_arrived(self, record: str, key: str, gradient: Any) -> None:
        session = self.session
        entry = self._gradients.get(record)
        if session is None or not session.active or entry is None or gradient is None:
            return
        try:
            with session.quiet():
                save = session.save_for(record, fleeting=True)
                entry.fields[key] = [session.collector.tree(gradient, f"{record}.{key}", save)]
            session.arrived(entry)
        except Exception as error:
            session.failed("parameter gradient", record, error)


def own_parameters(cell: nn.Cell) -> list[tuple[str, Any]]:
    """The parameters of a Cell itself, by their attributes."""
    return list(cell.parameters_and_names(expand=False))


def named_cells(models: nn.Cell | Sequence[nn.Cell]) -> list[tuple[str, nn.Cell]]:
    """The Cells inside a model as ``{path}.{Class}``; of several, the index of each stands in front.

    The model itself is no node; a Cell shared by two parents has the first one's name.
    """
    several = [("", models)] if isinstance(models, nn.Cell) else [(f"{i}.", m) for i, m in enumerate(models)]
    return [
        (f"{prefix}{path}.{type(cell).__name__}", cell)
        for prefix, model in several
        for path, cell in model.cells_and_names()
        if path
    ]
