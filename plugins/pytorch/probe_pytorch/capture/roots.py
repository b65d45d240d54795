"""Finding the models of a script that names none: a module called while no other runs is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from probe_recording import Threads
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from probe_pytorch import compat
from probe_pytorch.capture.modules import named_modules


class RootFinder:
    """Tells of models when they are first called.

    The first model's modules are called by their paths; those of the n-th by ``{n}.{path}`` in front,
    in the order of their first calls. A module without children is no model of its own.

    Args:
        threads: What is running.
        found: Told each model and its modules.
    """

    def __init__(
        self, threads: Threads, found: Callable[[nn.Module, list[tuple[str, nn.Module]]], None]
    ) -> None:
        self._threads = threads
        self._found = found
        self._roots: list[nn.Module] = []
        self._inside: set[nn.Module] = set()
        self._handle: Any = None
        self._warn_again: Callable[[], None] | None = None

    def install(self) -> None:
        """Look from now on; the models found before are told again."""
        if self._handle is None:
            self._warn_again = compat.silence_global_hooks()
            self._handle = register_module_forward_pre_hook(self._before)
        for number, root in enumerate(self._roots):
            self._found(root, _named(root, number))

    def remove(self) -> None:
        """Look no longer."""
        if self._handle is not None:
            self._handle.remove()
            self._handle = None
        warn_again, self._warn_again = self._warn_again, None
        if warn_again is not None:
            warn_again()

    def _before(self, module: nn.Module, _: Any) -> None:
        if compat.is_exporting():
            return
        if module in self._inside or self._threads.modules or not any(True for _ in module.children()):
            return
        # the first modules of a model are called from inside it: they are known by then
        self._inside.update(module.modules())
        self._roots.append(module)
        self._found(module, _named(module, len(self._roots) - 1))


def _named(root: nn.Module, number: int) -> list[tuple[str, nn.Module]]:
    prefix = f"{number}." if number else ""
    return [(f"{prefix}{name}", module) for name, module in named_modules(root)]
