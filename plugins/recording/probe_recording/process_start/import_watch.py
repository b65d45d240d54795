"""A finder of modules that reports when a module was imported for the first time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class ImportWatch:
    """An entry of ``sys.meta_path`` that calls a function after a module was imported completely.

    It finds no module itself; the module and its spec are the same as without it.

    Args:
        name: The name of the module.
        report: The function.
    """

    def __init__(self, name: str, report: Callable[[], None]) -> None:
        self._name = name
        self._report = report

    @property
    def is_installed(self) -> bool:
        """True while imports are watched."""
        return self in sys.meta_path

    def install(self) -> None:
        """Begin to watch the imports of this process."""
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders give for the module, and None for other modules."""
        if name != self._name:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _ReportingLoader(spec.loader, self._end)  # type: ignore[assignment]
                return spec
        return None

    def _end(self) -> None:
        if self.is_installed:
            sys.meta_path.remove(self)
            self._report()


class _ReportingLoader:
    """A loader that runs another, which the module keeps, and then reports."""

    def __init__(self, loader: Any, report: Callable[[], None]) -> None:
        self._loader = loader
        self._report = report

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        spec.loader = self._loader
        module: ModuleType | None = self._loader.create_module(spec)
        spec.loader = self  # type: ignore[assignment]
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._report()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
