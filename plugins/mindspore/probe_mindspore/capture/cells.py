"""Level L0: capture of the Cells of a model by hooks on their forward, and on nodes of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from mindspore import nn
from probe_recording.api import Backward, ModuleHooks
from probe_recording.capture.module_hooks import RunningModule
from probe_recording.capture.threads import Threads
from probe_recording.sites import Stack

from probe_mindspore import compat
from probe_mindspore.capture.draws import DrawWatch
from probe_mindspore.capture.gradients import attach, list_sources, list_tensors
from probe_mindspore.session import MindSporeSession


class CellHooks(ModuleHooks[MindSporeSession]):
    """Hooks of the Cells of a model and of their parameters."""

    scope = "Cell"
    outputs_may_change = True

    def __init__(self, threads: Threads, draws: DrawWatch) -> None:
        super().__init__(threads)
        self._draws = draws
        self._places: dict[str, int] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> CellHooks:
        return self  # a copied model keeps its hooks, which belong to the original

    def _hook(self, cell: nn.Cell) -> None:
        self._handles += compat.hook_forward(cell, self._begin_forward, self._end_forward)

    def remove(self) -> None:
        """Remove all hooks."""
        self._places.clear()
        super().remove()

    def _begin_forward(self, cell: nn.Cell, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        super()._begin_forward(cell, args, kwargs)
        running = self._threads.running
        if running and running[-1].module is cell:
            self._places.setdefault(running[-1].key, self._draws.place)

    def _record(self, session: MindSporeSession, running: RunningModule, output: Any) -> None:
        place = self._places.pop(running.key, None)
        if place is not None and running.is_recorded:
            self._draws.record(running.key, place)
        super()._record(session, running, output)

    def _iterate_direct_parameters(self, cell: nn.Cell) -> Iterable[tuple[str, Any]]:
        return list(cell.parameters_and_names(expand=False))

    def _is_recompute(self, stack: Stack) -> bool:
        return compat.is_recompute(stack)

    def _take_sources(self, running: RunningModule, values: tuple[Any, ...]) -> None:
        if compat.has_nodes():
            running.sources = list_sources(values)

    def _expect_gradients(self, session: MindSporeSession, running: RunningModule, key: str, output: Any) -> None:
        if compat.has_nodes():
            tensors = list_tensors((output,))
            size = len(tensors), len(running.sources)
            backward = partial(Backward, session, key, running.parent, size, running.is_in_selected_module)
            attach(tensors, running.sources, backward, session.quiet)

    def _hook_gradient(self, parameter: Any, on_gradient: Callable[[Any], None]) -> Any:
        def hook(gradient: Any) -> None:
            if gradient is not None:
                on_gradient(gradient)

        return parameter.register_hook(hook)


def list_models(model: nn.Cell | Iterable[nn.Cell] | None) -> list[nn.Cell]:
    """Return the models that a script passed, one, several or None, as a list."""
    return [model] if isinstance(model, nn.Cell) else list(model or ())


def list_all_cells(models: nn.Cell | Sequence[nn.Cell]) -> list[nn.Cell]:
    """Return models and the Cells inside them."""
    return [*list_models(models), *(cell for _, cell in list_cells(models))]


def list_cells(models: nn.Cell | Sequence[nn.Cell]) -> list[tuple[str, nn.Cell]]:
    """Return the Cells inside a model with their names, ``{path}.{Class}``.

    The model itself is not among them. A Cell shared by two parents has the name of the first.

    Args:
        models: A model, or several; the names of several begin with the index of their model.
    """
    prefixed_models = [("", models)] if isinstance(models, nn.Cell) else [(f"{i}.", m) for i, m in enumerate(models)]
    return [
        (f"{prefix}{path}.{type(cell).__name__}", cell)
        for prefix, model in prefixed_models
        for path, cell in model.cells_and_names()
        if path
    ]
