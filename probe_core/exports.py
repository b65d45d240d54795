"""Names that a module imports only when they are first used: lazy exports, and names that moved."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def create_exporter(
    module: str, names: Mapping[str, str], former: Mapping[str, str] = {}, renamed: Mapping[str, str] = {}
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that imports its exports on first use (PEP 562).

    Args:
        module: The full name of the module: a package, or a module inside it.
        names: The exported names of each module of the package, separated by blanks.
        former: The names that it no longer exports; a use of them raises a ``DeprecationWarning``.
        renamed: For each earlier name the present one; a use of it raises a ``DeprecationWarning``.
    """
    homes = {name: home for table in (former, names) for home in table for name in table[home].split()}
    exported = " ".join(names.values()).split()

    def get(name: str) -> Any:
        if (present := renamed.get(name, name)) not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module("." + homes[present], sys.modules[module].__package__), present)
        if present == name and name in exported:
            setattr(sys.modules[module], name, value)
        else:
            what = f"is called {present} now" if present in exported else f"is not in {module}.api, and works until 0.3"
            warnings.warn(f"{module}.{name} {what}.", DeprecationWarning, stacklevel=2)
        return value

    return get


def create_deprecated_exporter(
    module: str, homes: Mapping[str, str], renamed: Mapping[str, str] = {}
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module that gives moved and renamed names, with a ``DeprecationWarning``.

    Args:
        module: The full name of the module.
        homes: The module that each name moved to.
        renamed: The present name in the module for each earlier name.
    """

    def get(name: str) -> Any:
        if name in renamed:
            warnings.warn(f"{module}.{name} is called {renamed[name]} now.", DeprecationWarning, stacklevel=2)
            name = renamed[name]
            return getattr(import_module(homes[name]) if name in homes else sys.modules[module], name)
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{module}.{name} moved to {homes[name]}.{name}.", DeprecationWarning, stacklevel=2)
        return getattr(import_module(homes[name]), name)

    return get


def add_alias(owner: type, former: str, name: str) -> None:
    """Let instances of a class give the attribute ``name`` by its former name, with a ``DeprecationWarning``."""

    def get(instance: Any) -> Any:
        warnings.warn(f"{owner.__name__}.{former} is called {name} now.", DeprecationWarning, stacklevel=2)
        return getattr(instance, name)

    setattr(owner, former, property(get))
