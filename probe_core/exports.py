"""Names that a module imports only when they are first used: lazy exports, and names that moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any


def create_exporter(
    package: str, names: Mapping[str, str], renamed: Mapping[str, str] = MappingProxyType({})
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package that imports its exports on first use (PEP 562), and set its ``__all__``.

    Args:
        package: The full name of the package.
        names: The exported names of each of its modules, separated by blanks.
        renamed: For each former name the present one; a use of it raises a ``DeprecationWarning``.
    """
    homes = {name: module for module, exported in names.items() for name in exported.split()}
    vars(sys.modules[package])["__all__"] = sorted(homes)

    def get(name: str) -> Any:
        if name in renamed:
            warnings.warn(f"{package}.{name} is called {renamed[name]} now.", DeprecationWarning, stacklevel=2)
            name = renamed[name]
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return get


def create_deprecated_exporter(module: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module whose names moved to others, which it still gives with a warning.

    Args:
        module: The full name of the module.
        homes: The module that each name moved to.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} moved to {homes[name]}.{name}.", DeprecationWarning, stacklevel=2)
        return getattr(import_module(homes[name]), name)

    return get
