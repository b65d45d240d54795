"""Finding of the models in a script that names none: a module called while no other runs is a model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from probe_recording.api import Capture
from probe_recording.capture.threads import Threads
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from probe_pytorch import compat
from probe_pytorch.capture.modules import list_modules
from probe_pytorch.session import TorchSession


class ModelFinder(Capture[TorchSession]):
    """A finder that reports models when they are first called, for a script that passes none to ``start``.

    The modules of the first model are named by their paths, those of the second by ``1.{path}``, and so on in
    the order of first calls. A module without children does not count as a model.

    Args:
        threads: The state of the threads.
        on_root: A callback that receives each model and its named modules.
        on_call: A callback that receives a model that was just found, and the arguments of its call.
    """

    def __init__(
        self,
        threads: Threads,
        on_root: Callable[[nn.Module, list[tuple[str, nn.Module]]], None],
        on_call: Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None],
    ) -> None:
        self._threads = threads
        self._on_root = on_root
        self._on_call = on_call
        self._roots: list[nn.Module] = []
        self._inside: set[nn.Module] = set()
        self._handle: Any = None
        self._warn_again: Callable[[], None] | None = None

    def install(self, session: TorchSession, model: Any) -> None:
        """Start the search, and report the models found before again."""
        if model is not None or not (session.config.modules or session.config.records_step_phases):
            return
        if self._handle is None:
            self._warn_again = compat.silence_global_hooks()
            self._handle = register_module_forward_pre_hook(self._visit_module)
        for number, root in enumerate(self._roots):
            self._on_root(root, _name_modules(root, number))

    def remove(self) -> None:
        """Stop the search."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        warn_again, self._warn_again = self._warn_again, None
        if warn_again is not None:
            warn_again()

    def _visit_module(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        if compat.is_exporting():
            return
        if module in self._inside or self._threads.modules or not any(True for _ in module.children()):
            return
        # modules of a model are called from inside it and are not models themselves
        self._inside.update(module.modules())
        self._roots.append(module)
        self._on_root(module, _name_modules(module, len(self._roots) - 1))
        self._on_call(module, args, compat.read_keywords(sys._getframe(1)))


def _name_modules(root: nn.Module, number: int) -> list[tuple[str, nn.Module]]:
    prefix = f"{number}." if number else ""
    return [(f"{prefix}{name}", module) for name, module in list_modules(root)]
